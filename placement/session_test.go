package placement_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"croft/placement"
	"croft/placement/ledger"
)

// troubled is a store that can become silent, break its watches, and be replaced by an older copy of itself.
type troubled struct {
	current atomic.Pointer[memory]
	silent  atomic.Bool
	breaks  atomic.Pointer[context.CancelCauseFunc]
}

func (s *troubled) Limit() int { return s.current.Load().Limit() }

func (s *troubled) Load(ctx context.Context) (ledger.Snapshot, error) {
	return s.current.Load().Load(ctx)
}

func (s *troubled) Watch(ctx context.Context, after int64, changed func(int64, []ledger.Entry)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.breaks.Store(&cancel)
	if err := s.current.Load().Watch(ctx, after, changed); err != nil {
		return context.Cause(ctx)
	}
	return nil
}

func (s *troubled) Commit(ctx context.Context, t ledger.Txn) (ledger.Outcome, error) {
	if s.silent.Load() {
		<-ctx.Done()
		return ledger.Outcome{}, ctx.Err()
	}
	return s.current.Load().Commit(ctx, t)
}

// inTrouble runs a server on a troubled store in a bubble with fake time.
func inTrouble(t *testing.T, test func(t *testing.T, s *troubled, server *placement.Server, send func(method, path,
	body string) int)) {
	synctest.Test(t, func(t *testing.T) {
		s := &troubled{}
		s.current.Store(newMemory())
		server, err := placement.New(placement.Config{Store: s, Log: slog.New(slog.DiscardHandler),
			Beat: time.Second, Patience: 3 * time.Second, Retry: 200 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- server.Run(ctx) }()
		if err := server.WaitReady(ctx); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the server's watch starts after it is ready
		test(t, s, server, func(method, path, body string) int {
			r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
			r.Header.Set("X-Auth-Token", "admin")
			r.Header.Set("OpenStack-API-Version", "placement 1.39")
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			server.Handler().ServeHTTP(w, r)
			return w.Code
		})
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestSilentStoreIsLostAfterPatience(t *testing.T) {
	inTrouble(t, func(t *testing.T, s *troubled, server *placement.Server, send func(method, path, body string) int) {
		s.silent.Store(true)
		time.Sleep(time.Second + 2900*time.Millisecond) // a beat, and not quite the whole patience
		synctest.Wait()
		if err := server.Ready(); err != nil {
			t.Errorf("lost too early: %v", err)
		}
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		if err := server.Ready(); err == nil || !strings.Contains(err.Error(), "has not told its revision for 3s") {
			t.Errorf("after more than its patience: %v", err)
		}
		s.silent.Store(false)
		time.Sleep(time.Second)
		if code := send("PUT", "/traits/CUSTOM_BLUE", ""); code != http.StatusCreated {
			t.Errorf("answered %d after the store came back", code)
		}
	})
}

func TestReadsWaitForASilentStoreNoLongerThanPatience(t *testing.T) {
	inTrouble(t, func(t *testing.T, s *troubled, _ *placement.Server, send func(method, path, body string) int) {
		s.silent.Store(true)
		start := time.Now()
		if code := send("GET", "/allocations/"+consumerID, ""); code != http.StatusServiceUnavailable {
			t.Errorf("a read of claims is answered %d", code)
		}
		if code := send("PUT", "/traits/CUSTOM_BLUE", ""); code != http.StatusServiceUnavailable {
			t.Errorf("a write is answered %d", code)
		}
		if took := time.Since(start); took > 7*time.Second {
			t.Errorf("the two took %s", took)
		}
		if code := send("GET", "/", ""); code != http.StatusOK {
			t.Errorf("the versions are answered %d", code)
		}
	})
}

// After the store was restored from a backup, the server's old state is gone.
func TestStoreThatIsRestored(t *testing.T) {
	inTrouble(t, func(t *testing.T, s *troubled, _ *placement.Server, send func(method, path, body string) int) {
		if code := send("PUT", "/traits/CUSTOM_KEPT", ""); code != http.StatusCreated {
			t.Fatalf("answered %d", code)
		}
		backup := s.current.Load().copy()
		if code := send("PUT", "/traits/CUSTOM_GONE", ""); code != http.StatusCreated {
			t.Fatalf("answered %d", code)
		}
		s.current.Store(backup)
		(*s.breaks.Load())(errors.New("restored"))
		synctest.Wait()
		if code := send("GET", "/traits/CUSTOM_KEPT", ""); code != http.StatusServiceUnavailable {
			t.Errorf("answered %d before it was loaded again", code)
		}
		time.Sleep(time.Second)
		for path, want := range map[string]int{"/traits/CUSTOM_KEPT": http.StatusNoContent,
			"/traits/CUSTOM_GONE": http.StatusNotFound} {
			if code := send("GET", path, ""); code != want {
				t.Errorf("%s is answered %d, want %d", path, code, want)
			}
		}
		if code := send("PUT", "/traits/CUSTOM_NEW", ""); code != http.StatusCreated {
			t.Errorf("a write is answered %d", code)
		}
	})
}
