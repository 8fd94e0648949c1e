package placement_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"

	"github.com/google/uuid"

	"croft/etcdstore/etcdserver"
	"croft/etcdstore/etcdtest"
	"croft/placement"
)

// handle runs a server on a new store and returns its handler.
func handle(tb testing.TB) http.Handler {
	server, err := placement.New(placement.Config{Store: etcdtest.Embedded(tb).Placement(etcdserver.TxnOps)})
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			tb.Error(err)
		}
	})
	for server.Ready() != nil {
		runtime.Gosched()
	}
	return server.Handler()
}

// send calls a handler without a connection.
func send(tb testing.TB, h http.Handler, method, path, body string, want int) {
	r := httptest.NewRequestWithContext(tb.Context(), method, path, bytes.NewReader([]byte(body)))
	r.Header["X-Auth-Token"] = []string{"admin"}
	r.Header["Openstack-Api-Version"] = []string{"placement 1.39"}
	r.Header["Content-Type"] = []string{"application/json"}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != want {
		tb.Errorf("%s %s: %d %s", method, path, w.Code, w.Body)
	}
}

// register registers a host as an agent does.
func register(tb testing.TB, h http.Handler, id string) {
	send(tb, h, "POST", "/resource_providers", fmt.Sprintf(`{"uuid": %q, "name": "host-%s"}`, id, id), 200)
	send(tb, h, "PUT", "/resource_providers/"+id+"/inventories", `{"resource_provider_generation": 0, "inventories": {
		"VCPU": {"total": 64, "allocation_ratio": 1000}, "MEMORY_MB": {"total": 2000000000}, "DISK_GB": {"total": 2000000000}}}`, 200)
	send(tb, h, "PUT", "/resource_providers/"+id+"/traits",
		`{"resource_provider_generation": 1, "traits": ["COMPUTE_NODE", "HW_CPU_X86_AVX2", "HW_CPU_X86_SSE42", "HW_CPU_X86_VMX"]}`, 200)
}

func BenchmarkClaims(b *testing.B) {
	for _, clients := range []int{1, 64} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			h := handle(b)
			hosts := make([]string, 64)
			for i := range hosts {
				hosts[i] = uuid.NewString()
				register(b, h, hosts[i])
			}
			each(b, clients, func(n int) {
				send(b, h, "PUT", "/allocations/"+uuid.NewString(),
					fmt.Sprintf(`{"allocations": {%q: {"resources": {"VCPU": 1, "MEMORY_MB": 256, "DISK_GB": 1}}},
					"project_id": "p", "user_id": "u", "consumer_generation": null, "consumer_type": "INSTANCE"}`, hosts[n%len(hosts)]), 204)
			})
		})
	}
}

func BenchmarkRegister(b *testing.B) {
	for _, clients := range []int{1, 64} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			h := handle(b)
			each(b, clients, func(int) { register(b, h, uuid.NewString()) })
		})
	}
}

// BenchmarkRegisterAtOnce is like BenchmarkRegister, with croft's own request.
func BenchmarkRegisterAtOnce(b *testing.B) {
	for _, clients := range []int{1, 64} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			h := handle(b)
			each(b, clients, func(int) {
				id := uuid.NewString()
				send(b, h, "PUT", "/croft/providers/"+id, fmt.Sprintf(`{"name": "host-%s", "inventories": {
					"VCPU": {"total": 64, "allocation_ratio": 1000}, "MEMORY_MB": {"total": 2000000000}, "DISK_GB": {"total": 2000000000}},
					"traits": ["COMPUTE_NODE", "HW_CPU_X86_AVX2", "HW_CPU_X86_SSE42", "HW_CPU_X86_VMX"], "aggregates": []}`, id), 201)
			})
		})
	}
}

// each runs do b.N times in total, in the given number of goroutines.
func each(b *testing.B, clients int, do func(n int)) {
	b.ReportAllocs()
	b.ResetTimer()
	work := make(chan int)
	ended := make(chan struct{})
	for range clients {
		go func() {
			defer func() { ended <- struct{}{} }()
			for n := range work {
				do(n)
			}
		}()
	}
	for n := range b.N {
		work <- n
	}
	close(work)
	for range clients {
		<-ended
	}
}
