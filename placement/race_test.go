package placement_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"croft/etcdstore/etcdtest"
)

// api sends requests to one server, or to several in turns.
type api struct {
	t       testing.TB
	servers []string
	client  *http.Client
	turn    *atomic.Int64
}

func newAPI(t testing.TB, servers ...string) api {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 128
	t.Cleanup(transport.CloseIdleConnections)
	return api{t: t, servers: servers, client: &http.Client{Transport: transport}, turn: new(atomic.Int64)}
}

// do sends a request at the newest microversion to the next server.
func (a api) do(method, path, body string) (int, string) {
	a.t.Helper()
	base := a.servers[int(a.turn.Add(1))%len(a.servers)]
	req, err := http.NewRequestWithContext(a.t.Context(), method, base+path, strings.NewReader(body))
	if err != nil {
		a.t.Error(err)
		return 0, ""
	}
	req.Header.Set("X-Auth-Token", "admin")
	req.Header.Set("OpenStack-API-Version", "placement 1.39")
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(out)
}

// must is do for requests that must succeed.
func (a api) must(method, path, body string) string {
	a.t.Helper()
	status, out := a.do(method, path, body)
	if status < 200 || status > 299 {
		a.t.Fatalf("%s %s %s: %d %s", method, path, body, status, out)
	}
	return out
}

// host creates a provider and returns its UUID.
func (a api) host(inventories string) string {
	a.t.Helper()
	id := uuid.NewString()
	a.must("POST", "/resource_providers", fmt.Sprintf(`{"name": %q, "uuid": %q}`, "host-"+id, id))
	a.must("PUT", "/resource_providers/"+id+"/inventories",
		`{"resource_provider_generation": 0, "inventories": `+inventories+`}`)
	return id
}

// claimOf returns the body of a claim for a new consumer.
func claimOf(allocations string) string {
	return `{"allocations": ` + allocations +
		`, "project_id": "p", "user_id": "u", "consumer_generation": null, "consumer_type": "INSTANCE"}`
}

func (a api) used(provider, class string) int {
	a.t.Helper()
	var v struct{ Usages map[string]int }
	if err := json.Unmarshal([]byte(a.must("GET", "/resource_providers/"+provider+"/usages", "")), &v); err != nil {
		a.t.Fatal(err)
	}
	return v.Usages[class]
}

func TestClaimsNeverExceedInventory(t *testing.T) {
	const slots, claims, clients = 20, 60, 16
	store := etcdtest.Server(t)
	one, two := serveOn(t, etcdtest.Open(t, store)), serveOn(t, etcdtest.Open(t, store))
	for name, servers := range map[string][]string{"by one server": {one}, "by two servers on one etcd": {one, two}} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t, servers...)
			hosts := make([]string, 4)
			for i := range hosts {
				hosts[i] = a.host(`{"VCPU": {"total": 100000}}`)
			}
			for round := range 3 {
				quota := a.host(fmt.Sprintf(`{"DISK_GB": {"total": %d}}`, slots))
				a.hammer(t, claims, clients, slots, func(n int) string {
					return fmt.Sprintf(`{%q: {"resources": {"DISK_GB": 1}}, %q: {"resources": {"VCPU": 1}}}`, quota,
						hosts[n%len(hosts)])
				})
				if used := a.used(quota, "DISK_GB"); used != slots {
					t.Errorf("round %d: %d of %d used", round, used, slots)
				}
			}
			total := 0
			for _, h := range hosts {
				total += a.used(h, "VCPU")
			}
			if total != 3*slots {
				t.Errorf("%d VCPU used by %d granted claims", total, 3*slots)
			}
		})
	}
}

// hammer claims from many clients at once. Exactly the given number must be granted, and the others refused for lack of
// capacity.
func (a api) hammer(t *testing.T, claims, clients, granted int, allocations func(n int) string) {
	t.Helper()
	var work sync.WaitGroup
	var next, ok atomic.Int64
	for range clients {
		work.Go(func() {
			for {
				n := int(next.Add(1))
				if n > claims {
					return
				}
				switch status, body := a.do("PUT", "/allocations/"+uuid.NewString(), claimOf(allocations(n))); {
				case status == http.StatusNoContent:
					ok.Add(1)
				case status != http.StatusConflict || !strings.Contains(body, "exceed the capacity"):
					t.Errorf("%d %s", status, body)
				}
			}
		})
	}
	work.Wait()
	if int(ok.Load()) != granted {
		t.Errorf("%d claims granted, want %d", ok.Load(), granted)
	}
}

// A client that releases and then claims through another server gets the released resources: a claim may be refused
// only while nothing is free.
func TestReleaseIsSeenByTheNextClaim(t *testing.T) {
	server := etcdtest.Server(t)
	a := newAPI(t, serveOn(t, etcdtest.Open(t, server)), serveOn(t, etcdtest.Open(t, server)))
	host := a.host(`{"VCPU": {"total": 4}}`)
	var work sync.WaitGroup
	for range 4 { // as many as there are units
		work.Go(func() {
			for range 40 {
				consumer := uuid.NewString()
				if status, body := a.do("PUT", "/allocations/"+consumer,
					claimOf(fmt.Sprintf(`{%q: {"resources": {"VCPU": 1}}}`,
						host))); status != http.StatusNoContent {
					t.Errorf("claim: %d %s", status, body)
				}
				if status, body := a.do("DELETE", "/allocations/"+consumer, ""); status != http.StatusNoContent {
					t.Errorf("release: %d %s", status, body)
				}
			}
		})
	}
	work.Wait()
	if used := a.used(host, "VCPU"); used != 0 {
		t.Errorf("%d used after all was given back", used)
	}
}
