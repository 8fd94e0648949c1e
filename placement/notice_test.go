package placement_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"

	"croft/placement"
	"croft/placement/ledger"
)

// TestConsumersOfOneRequestAreSummed requests more than the capacity, for consumers that would each fit alone.
func TestConsumersOfOneRequestAreSummed(t *testing.T) {
	h := handle(t)
	host, one, two := uuid.NewString(), uuid.NewString(), uuid.NewString()
	send(t, h, "POST", "/resource_providers", `{"uuid": "`+host+`", "name": "h"}`, 200)
	send(t, h, "PUT", "/resource_providers/"+host+"/inventories",
		`{"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 8}}}`, 200)
	claims := func(first, second string) string {
		claim := func(n string) string {
			return `{"allocations": {"` + host + `": {"resources": {"VCPU": ` + n +
				`}}}, "project_id": "p", "user_id": "u", "consumer_generation": null, "consumer_type": "INSTANCE"}`
		}
		return `{"` + one + `": ` + claim(first) + `, "` + two + `": ` + claim(second) + `}`
	}
	send(t, h, "POST", "/allocations", claims("5", "4"), 409)
	send(t, h, "POST", "/allocations", claims("5", "3"), 204)
}

// lateWatch is a store whose watch reports nothing until released.
type lateWatch struct {
	*memory
	may chan struct{}
}

func (l *lateWatch) Watch(ctx context.Context, after int64, changed func(int64, []ledger.Entry)) error {
	return l.memory.Watch(ctx, after, func(revision int64, entries []ledger.Entry) {
		select {
		case <-l.may:
		case <-ctx.Done():
			return
		}
		changed(revision, entries)
	})
}

// TestWriteIsAnsweredWhenTheServerKnowsIt writes to a server whose watch is late: once with no earlier change for the
// watch to report, and once with one.
func TestWriteIsAnsweredWhenTheServerKnowsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &lateWatch{newMemory(), make(chan struct{})}
		server, err := placement.New(placement.Config{Store: store, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- server.Run(ctx) }()
		if err := server.WaitReady(ctx); err != nil {
			t.Fatal(err)
		}
		call := func(method, path string) int {
			r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(""))
			r.Header.Set("X-Auth-Token", "admin")
			r.Header.Set("OpenStack-API-Version", "placement 1.39")
			w := httptest.NewRecorder()
			server.Handler().ServeHTTP(w, r)
			return w.Code
		}
		if code := call("PUT", "/traits/CUSTOM_ONE"); code != http.StatusCreated {
			t.Fatalf("answered %d", code)
		}
		if code := call("GET", "/traits/CUSTOM_ONE"); code != http.StatusNoContent {
			t.Errorf("what was answered to be written is answered %d", code)
		}
		// Another server writes something that this one does not know yet.
		if _, err := store.Commit(ctx, ledger.Txn{Then: []ledger.Write{{Key: ledger.Key{Kind: ledger.KindTrait,
			ID: "CUSTOM_OTHER"}, Value: []byte(`{"created": 1}`)}}}); err != nil {
			t.Fatal(err)
		}
		answered := make(chan int, 1)
		go func() { answered <- call("PUT", "/traits/CUSTOM_TWO") }()
		synctest.Wait()
		select {
		case code := <-answered:
			t.Errorf("answered %d before the server knows what it wrote", code)
			answered <- code
		default:
		}
		close(store.may)
		if code := <-answered; code != http.StatusCreated {
			t.Errorf("answered %d", code)
		}
		for _, path := range []string{"/traits/CUSTOM_TWO", "/traits/CUSTOM_OTHER"} {
			if code := call("GET", path); code != http.StatusNoContent {
				t.Errorf("%s is answered %d after that", path, code)
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
