package placement_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"croft/etcdstore"
	"croft/etcdstore/etcdserver"
	"croft/etcdstore/etcdtest"
	"croft/placement"
)

// A request may concern as many consumers as one transaction of etcd can hold; one with more is refused before anything
// is written. One entry is the host's generation, two belong to the store.
func TestRequestsBeyondTheTransactionLimit(t *testing.T) {
	for _, limit := range []int{etcdstore.DefaultTxnOps, etcdserver.TxnOps} {
		t.Run(fmt.Sprintf("%d operations", limit), func(t *testing.T) {
			etcd, err := etcdserver.Start(t.Context(), etcdserver.Config{
				Dir: t.TempDir(), Listen: "127.0.0.1:0", Unsynced: true, MaxTxnOps: uint(limit)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(etcd.Close)
			store := etcdtest.Open(t, etcd)
			if found, err := store.MaxTxnOps(t.Context()); err != nil || found != limit {
				t.Fatalf("the limit was found to be %d, %v", found, err)
			}
			a := newAPI(t, serveWith(t, placement.Config{Store: store.Placement(limit), Patience: time.Minute}))
			host := a.host(`{"VCPU": {"total": 100000}}`)
			before := a.dump()
			most := limit - 3
			status, body := a.do("POST", "/allocations", claimsOf(host, most+1))
			if status != http.StatusRequestEntityTooLarge ||
				!strings.Contains(body, fmt.Sprintf("concerns %d entries of the store and one transaction can hold %d",
					most+2,
					limit-2)) {
				t.Errorf("%d %s", status, body)
			}
			if after := a.dump(); len(after) != len(before) || a.used(host, "VCPU") != 0 {
				t.Errorf("a request that was refused changed something: %v", after)
			}
			all := claimsOf(host, most)
			status, body = a.do("POST", "/allocations", all)
			for unknown := false; status != http.StatusNoContent && (!unknown || status != http.StatusConflict); {
				if unknown = true; status != http.StatusServiceUnavailable { // a busy etcd takes longer than its limit
					t.Fatalf("%d %s", status, body)
				}
				status, body = a.do("POST", "/allocations", all)
			}
			if used := a.used(host, "VCPU"); used != most {
				t.Errorf("%d used by %d claims", used, most)
			}
		})
	}
}

// claimsOf returns a body in which the given number of consumers claim 1 VCPU each.
func claimsOf(host string, consumers int) string {
	var b strings.Builder
	claim := claimOf(fmt.Sprintf(`{%q: {"resources": {"VCPU": 1}}}`, host))
	for i := range consumers {
		fmt.Fprintf(&b, `%s%q: %s`, map[bool]string{true: "{", false: ", "}[i == 0], uuid.NewString(), claim)
	}
	return b.String() + "}"
}
