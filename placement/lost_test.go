package placement_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"croft/etcdstore/etcdtest"
	"croft/placement"
)

// dump returns everything that a server reports about its state, by path.
func (a api) dump() map[string]string {
	a.t.Helper()
	out := map[string]string{}
	get := func(path string) string {
		out[path] = a.must("GET", path, "")
		return out[path]
	}
	get("/traits")
	get("/resource_classes")
	var list struct {
		Providers []struct{ UUID string } `json:"resource_providers"`
	}
	a.decode(get("/resource_providers"), &list)
	for _, p := range list.Providers {
		at := "/resource_providers/" + p.UUID
		get(at)
		for _, part := range []string{"/inventories", "/traits", "/aggregates", "/usages"} {
			get(at + part)
		}
		var held struct{ Allocations map[string]any }
		a.decode(get(at+"/allocations"), &held)
		for consumer := range held.Allocations {
			get("/allocations/" + consumer)
		}
	}
	return out
}

func (a api) decode(text string, v any) {
	a.t.Helper()
	if err := json.Unmarshal([]byte(text), v); err != nil {
		a.t.Fatal(err)
	}
}

// until repeats a request until it is answered with a status, and returns the body.
func (a api) until(want int, method, path, body string) string {
	a.t.Helper()
	for a.t.Context().Err() == nil {
		status, out := a.do(method, path, body)
		if status == want {
			return out
		}
		<-time.After(10 * time.Millisecond)
	}
	a.t.Fatalf("%s %s: never %d", method, path, want)
	return ""
}

// fill creates some objects of every kind.
func (a api) fill() {
	a.must("PUT", "/traits/CUSTOM_BLUE", "")
	a.must("PUT", "/resource_classes/CUSTOM_SLOT", "")
	for range 3 {
		host := a.host(`{"VCPU": {"total": 8}, "CUSTOM_SLOT": {"total": 2}}`)
		a.must("PUT", "/resource_providers/"+host+"/traits",
			`{"resource_provider_generation": 1, "traits": ["CUSTOM_BLUE", "HW_CPU_X86_AVX2"]}`)
		a.must("PUT", "/resource_providers/"+host+"/aggregates",
			fmt.Sprintf(`{"resource_provider_generation": 2, "aggregates": [%q]}`, uuid.NewString()))
		a.must("PUT", "/allocations/"+uuid.NewString(),
			claimOf(fmt.Sprintf(`{%q: {"resources": {"VCPU": 2, "CUSTOM_SLOT": 1}}}`, host)))
	}
}

// When the connection to etcd breaks, all requests are answered 503 as soon as the server notices, which takes no
// request or beat, until the connection is restored.
func TestLostEtcdIs503UntilItReturns(t *testing.T) {
	m := join(t, etcdtest.Server(t), placement.Config{Beat: time.Hour})
	a := newAPI(t, m.url())
	a.fill()
	host := a.host(`{"VCPU": {"total": 8}}`)
	before := a.dump()
	for round := range 2 {
		m.etcd.Cut()
		body := a.until(http.StatusServiceUnavailable, "GET", "/resource_providers", "")
		if !strings.Contains(body, "etcd at http://") || !strings.Contains(body, `"title": "Service Unavailable"`) {
			t.Errorf("the answer does not say what is missing: %s", body)
		}
		for _, r := range [][3]string{
			{"GET", "/readyz"}, {"GET", "/allocation_candidates?resources=VCPU:1"},
			{"GET", "/resource_providers/" + host},
			{"PUT", "/allocations/" + uuid.NewString(), claimOf(fmt.Sprintf(`{%q: {"resources": {"VCPU": 1}}}`, host))},
			{"DELETE", "/resource_providers/" + host},
		} {
			if status, body := a.do(r[0], r[1], r[2]); status != http.StatusServiceUnavailable {
				t.Errorf("round %d: %s %s: %d %s", round, r[0], r[1], status, body)
			}
		}
		if status, _ := a.do("GET", "/", ""); status != http.StatusOK {
			t.Errorf("the versions need no etcd, but are answered %d", status)
		}
		m.etcd.Mend()
		a.until(http.StatusOK, "GET", "/readyz", "")
		if diff := cmp.Diff(before, a.dump()); diff != "" {
			t.Errorf("round %d: after the loss: %s", round, diff)
		}
	}
}

// A write in flight when the connection to etcd breaks is answered at once too.
func TestWriteUnderWayWhenEtcdIsLost(t *testing.T) {
	m := join(t, etcdtest.Server(t), placement.Config{Beat: time.Hour})
	a := newAPI(t, m.url())
	host := a.host(`{"VCPU": {"total": 8}}`)
	consumer := uuid.NewString()
	claim := claimOf(fmt.Sprintf(`{%q: {"resources": {"VCPU": 1}}}`, host))
	m.etcd.Hold()
	var work sync.WaitGroup
	work.Go(func() {
		if status, body := a.do("PUT", "/allocations/"+consumer, claim); status != http.StatusServiceUnavailable {
			t.Errorf("%d %s", status, body)
		}
	})
	m.etcd.WaitHeld()
	m.etcd.Cut()
	work.Wait()
	m.etcd.Flow()
	m.etcd.Mend()
	// Ready may be outdated until the watch notices the break.
	out := a.until(http.StatusOK, "GET", "/resource_providers/"+host+"/usages", "")
	if !strings.Contains(out, `"VCPU": 0`) && !strings.Contains(out, `"VCPU": 1`) {
		t.Errorf("used by a claim of 1: %s", out)
	}
}

// An etcd that keeps the connection but is silent is considered lost too, after a while.
func TestSilentEtcd(t *testing.T) {
	m := join(t, etcdtest.Server(t), placement.Config{Beat: 10 * time.Millisecond, Patience: time.Second})
	a := newAPI(t, m.url())
	a.fill()
	before := a.dump()
	m.etcd.Hold()
	body := a.until(http.StatusServiceUnavailable, "GET", "/resource_providers", "")
	if !strings.Contains(body, "the store has not told its revision for 1s") {
		t.Errorf("the answer does not say what is wrong: %s", body)
	}
	m.etcd.Flow()
	a.until(http.StatusOK, "GET", "/readyz", "")
	if diff := cmp.Diff(before, a.dump()); diff != "" {
		t.Error(diff)
	}
}

// A server that was cut off misses revisions that etcd has compacted when it returns: it loads everything again, and
// has the same state as the others.
func TestCompactionWhileAServerIsBehind(t *testing.T) {
	etcd := etcdtest.Server(t)
	behind, ahead := join(t, etcd, placement.Config{Beat: time.Hour}), join(t, etcd, placement.Config{})
	a, b := newAPI(t, behind.url()), newAPI(t, ahead.url())
	b.fill()
	gone := b.host(`{"VCPU": {"total": 8}}`)
	if status, _ := a.do("GET", "/resource_providers/"+gone+"/usages", ""); status != http.StatusOK {
		t.Fatalf("the other server does not know the host: %d", status)
	}
	behind.etcd.Hold()
	b.fill()
	b.must("DELETE", "/resource_providers/"+gone, "")
	etcdtest.Compact(t, etcd)
	behind.etcd.Drop()
	behind.etcd.Flow()
	a.until(http.StatusNotFound, "GET", "/resource_providers/"+gone, "")
	if diff := cmp.Diff(b.dump(), a.dump()); diff != "" {
		t.Errorf("the servers differ: %s", diff)
	}
	b.fill() // it follows again
	if diff := cmp.Diff(b.dump(), newAPI(t, behind.url()).dumpConsistent(t)); diff != "" {
		t.Errorf("the servers differ later: %s", diff)
	}
}

// dumpConsistent returns a dump after a read that waits for writes through other servers.
func (a api) dumpConsistent(t *testing.T) map[string]string {
	t.Helper()
	a.must("GET", "/allocations/"+uuid.NewString(), "")
	return a.dump()
}

// A slow etcd is not considered lost.
func TestSlowEtcd(t *testing.T) {
	m := join(t, etcdtest.Server(t), placement.Config{})
	a := newAPI(t, m.url())
	host := a.host(`{"VCPU": {"total": 8}}`)
	m.etcd.Slow(200 * time.Millisecond)
	var work sync.WaitGroup
	for range 8 {
		work.Go(func() {
			if status, body := a.do("PUT", "/allocations/"+uuid.NewString(),
				claimOf(fmt.Sprintf(`{%q: {"resources": {"VCPU": 1}}}`, host))); status != http.StatusNoContent {
				t.Errorf("%d %s", status, body)
			}
		})
	}
	work.Wait()
	m.etcd.Slow(0)
	if used := a.used(host, "VCPU"); used != 8 {
		t.Errorf("%d used by 8 claims", used)
	}
}

// A server that is stopped completes and answers the writes in flight.
func TestStopAnswersWritesUnderWay(t *testing.T) {
	m := join(t, etcdtest.Server(t), placement.Config{})
	a := newAPI(t, m.url())
	host := a.host(`{"VCPU": {"total": 8}}`)
	m.etcd.Hold()
	answers := make(chan int, 1)
	var work sync.WaitGroup
	work.Go(func() {
		status, _ := a.do("PUT", "/allocations/"+uuid.NewString(),
			claimOf(fmt.Sprintf(`{%q: {"resources": {"VCPU": 1}}}`,
				host)))
		answers <- status
	})
	m.etcd.WaitHeld()
	work.Go(func() { m.stop() })
	m.etcd.Flow()
	work.Wait()
	m.stop = func() {}
	// The claim may have missed the last batch, but the answer must be true.
	status := <-answers
	m.start()
	want := map[int][]int{http.StatusNoContent: {1}, http.StatusServiceUnavailable: {0}}
	if used := a.used(host, "VCPU"); !slices.Contains(want[status], used) {
		t.Errorf("%d used after the answer %d", used, status)
	}
}
