package ledger

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"croft"
)

// liveStore is a store in memory, with a watch. Its fields control failures.
type liveStore struct {
	mu sync.Mutex
	*history
	grown    chan struct{}
	limit    int
	silent   bool                  // no transaction is answered
	before   func(Txn) error       // runs before each transaction; an error is the store's answer
	loading  func(*Snapshot) error // may change what is loaded
	late     time.Duration         // changes are reported this much later
	breaks   chan error            // ends the watch
	watching int                   // number of running watches
}

func newLiveStore(t *testing.T) *liveStore {
	return &liveStore{history: newHistory(t, 0), grown: make(chan struct{}), limit: 100, breaks: make(chan error)}
}

// Limit implements Store.
func (s *liveStore) Limit() int { return s.limit }

// Load implements Store.
func (s *liveStore) Load(context.Context) (Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := Snapshot{s.entries(), s.revision}
	if s.loading != nil {
		return out, s.loading(&out)
	}
	return out, nil
}

// Watch implements Store. It ends with a delay.
func (s *liveStore) Watch(ctx context.Context, after int64, changed func(int64, []Entry)) error {
	s.mu.Lock()
	s.watching++
	s.mu.Unlock()
	defer func() {
		time.Sleep(10 * time.Millisecond)
		s.mu.Lock()
		s.watching--
		s.mu.Unlock()
	}()
	for {
		s.mu.Lock()
		news, grown, late := slices.Clone(s.changes[min(int(after)-1, len(s.changes)):]), s.grown, s.late
		s.mu.Unlock()
		for _, entries := range news {
			time.Sleep(late)
			after++
			changed(after, slices.Clone(entries))
		}
		select {
		case <-grown:
		case err := <-s.breaks:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Commit implements Store.
func (s *liveStore) Commit(ctx context.Context, t Txn) (Outcome, error) {
	s.mu.Lock()
	silent, before := s.silent, s.before
	s.mu.Unlock()
	if silent {
		<-ctx.Done()
		return Outcome{}, ctx.Err()
	}
	if before != nil {
		if err := before(t); err != nil {
			return Outcome{}, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := Outcome{Before: s.revision}
	if out.Done = s.holds(t); out.Done && len(t.Then) > 0 {
		s.history.commit(t)
		close(s.grown)
		s.grown = make(chan struct{})
	}
	out.Revision = s.revision
	return out, nil
}

// set changes the store's fields.
func (s *liveStore) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// other stores the changes that another ledger decides.
func (s *liveStore) other(requests ...func(*Tx) error) {
	s.t.Helper()
	for _, r := range requests {
		s.mu.Lock()
		txn, errs := s.decide(r)
		s.mu.Unlock()
		if errs[0] != nil {
			s.t.Fatal(errs[0])
		}
		s.put(txn)
	}
}

// put stores writes without any ledger.
func (s *liveStore) put(txn Txn) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.history.commit(txn) {
		s.t.Fatal("the transaction does not hold")
	}
	close(s.grown)
	s.grown = make(chan struct{})
}

// running runs a ledger on a store in a bubble with fake time. before prepares the store. log returns what was logged
// so far.
func running(t *testing.T, before func(*liveStore), test func(t *testing.T, l *Ledger, s *liveStore,
	log func() string)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		s := newLiveStore(t)
		before(s)
		l, err := New(Config{Store: s, Log: slog.New(slog.NewTextHandler(&text, nil))})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.Run(ctx) }()
		synctest.Wait()
		test(t, l, s, func() string { synctest.Wait(); return text.String() })
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if s.watching != 0 {
			t.Errorf("%d watches are left after the end", s.watching)
		}
		if err := l.Change(t.Context(), create("late", "")); !errors.Is(err, croft.Unavailable) {
			t.Errorf("a change after the end: %v", err)
		}
	})
}

// told reports that an error is Unavailable and contains a text.
func told(err error, text string) bool {
	return errors.Is(err, croft.Unavailable) && strings.Contains(err.Error(), text)
}

func TestALedgerThatDoesNotRunIsUnavailable(t *testing.T) {
	if _, err := New(Config{}); !errors.Is(err, croft.Invalid) {
		t.Errorf("without a store: %v", err)
	}
	l, err := New(Config{Store: newLiveStore(t)})
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for what, err := range map[string]error{"Ready": l.Ready(), "Change": l.Change(t.Context(), create("a", "")),
		"CatchUp": l.CatchUp(t.Context()), "WaitReady": l.WaitReady(gone)} {
		if !told(err, "not loaded yet") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if sums := l.Sums(); sums != nil {
		t.Errorf("sums %v", sums)
	}
}

func TestAStoreThatCannotBeLoadedIsAskedAgain(t *testing.T) {
	broken := func(what string, load func(*Snapshot) error) {
		running(t, func(s *liveStore) { s.loading = load }, func(t *testing.T, l *Ledger, s *liveStore,
			_ func() string) {
			time.Sleep(time.Second)
			synctest.Wait()
			if err := l.Ready(); !told(err, "load the state: "+what) {
				t.Errorf("while it fails: %v", err)
			}
			s.set(func() { s.loading = nil })
			if err := l.WaitReady(t.Context()); err != nil {
				t.Error(err)
			}
			if err := errors.Join(l.Ready(), l.Change(t.Context(), create("a", ""))); err != nil {
				t.Errorf("when it can be loaded: %v", err)
			}
		})
	}
	broken("away", func(*Snapshot) error { return errors.New("away") })
	broken("entry provider x", func(out *Snapshot) error {
		out.Entries = append(out.Entries, Entry{Key: Key{KindProvider, "x"}, Value: []byte("no JSON")})
		return nil
	})
}

func TestALedgerFollowsItsStore(t *testing.T) {
	running(t, func(s *liveStore) { s.other(create("a", ""), offers("a", "VCPU", 4), takes("x", "a", "VCPU", 1)) },
		func(t *testing.T, l *Ledger, s *liveStore, _ func() string) {
			if err := errors.Join(l.Ready(), l.WaitReady(t.Context()), l.Exists(t.Context(), "a")); err != nil {
				t.Error(err)
			}
			s.set(func() { s.late = time.Second })
			s.other(create("b", ""))
			asked := make(chan error)
			go func() { asked <- l.CatchUp(t.Context()) }()
			synctest.Wait()
			if sums := l.Sums(); sums.Lag != 1 || sums.Objects["provider"] != 1 || sums.Capacity["VCPU"] != 4 ||
				sums.Claimed["VCPU"] != 1 || sums.Objects["consumer"] != 1 {
				t.Errorf("while a change is under way: %+v", sums)
			}
			if err := <-asked; err != nil || l.Sums().Lag != 0 || l.Sums().Objects["provider"] != 2 {
				t.Errorf("when it has arrived: %+v, %v", l.Sums(), err)
			}
			s.other(create("c", ""))
			if err := l.Exists(t.Context(), "c"); err != nil {
				t.Errorf("what was stored before the question: %v", err)
			}
			if err := l.Exists(t.Context(), "nobody"); !errors.Is(err, croft.NotFound) {
				t.Errorf("what is not there: %v", err)
			}
			if err := l.Change(t.Context(), remove("b")); err != nil || l.Sums().Objects["provider"] != 2 {
				t.Errorf("after the answer to a change: %+v, %v", l.Sums(), err)
			}
			if err := l.Change(t.Context(), remove("a")); !errors.Is(err, croft.Conflict) {
				t.Errorf("a refusal: %v", err)
			}
		})
}

func TestWhatASilentStoreIsNeededForIsUnavailable(t *testing.T) {
	running(t, func(s *liveStore) { s.other(create("a", "")) }, func(t *testing.T, l *Ledger, s *liveStore,
		_ func() string) {
		s.set(func() { s.silent = true })
		if err := l.Exists(t.Context(), "a"); err != nil {
			t.Errorf("what is in memory: %v", err)
		}
		if err := l.Exists(t.Context(), "b"); !errors.Is(err, croft.Unavailable) {
			t.Errorf("what is not: %v", err)
		}
		time.Sleep(50 * time.Millisecond) // less than the pause before the next try
		if err := l.Ready(); !told(err, "has not told its revision for 3s") {
			t.Errorf("ready: %v", err)
		}
		if err := l.Change(t.Context(), create("b", "")); !told(err, "has not told its revision") {
			t.Errorf("a change without a session: %v", err)
		}
		if err := l.CatchUp(t.Context()); !told(err, "has not told its revision") {
			t.Errorf("a question without a session: %v", err)
		}
		s.set(func() { s.silent = false })
		time.Sleep(time.Second)
		if err := l.Change(t.Context(), create("b", "")); err != nil {
			t.Errorf("when the store answers again: %v", err)
		}
		s.set(func() { s.silent = true })
		if err := l.Change(t.Context(), create("c", "")); !errors.Is(err, croft.Unavailable) {
			t.Errorf("a change that is not confirmed: %v", err)
		}
		s.set(func() { s.silent = false })
	})
}

// There are no requests, so only the beat notices it.
func TestASilentStoreIsNoticed(t *testing.T) {
	running(t, func(*liveStore) {}, func(t *testing.T, l *Ledger, s *liveStore, _ func() string) {
		s.set(func() { s.silent = true })
		time.Sleep(3900 * time.Millisecond)
		synctest.Wait()
		if err := l.Ready(); err != nil {
			t.Errorf("before its patience is over: %v", err)
		}
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		if err := l.Ready(); !told(err, "has not told its revision") {
			t.Errorf("after: %v", err)
		}
	})
}

func TestNobodyWaitsForAWatchThatHasEnded(t *testing.T) {
	running(t, func(*liveStore) {}, func(t *testing.T, l *Ledger, s *liveStore, log func() string) {
		s.set(func() { s.silent = true })
		answers := make(chan error)
		for _, id := range []string{"a", "b", "c"} {
			go func() { answers <- l.Change(t.Context(), create(id, "")) }()
			synctest.Wait() // the first is with the store, and the others are not taken yet
		}
		begin := time.Now()
		s.breaks <- errors.New("the line is cut")
		for range 3 {
			if err := <-answers; !told(err, "the line is cut") {
				t.Errorf("a change: %v", err)
			}
		}
		if took := time.Since(begin); took > 50*time.Millisecond {
			t.Errorf("it took %s", took)
		}
		synctest.Wait()
		if err := l.Ready(); !told(err, "the line is cut") {
			t.Errorf("ready: %v", err)
		}
		s.set(func() { s.silent = false })
		time.Sleep(time.Second)
		if err := errors.Join(l.Ready(), l.Change(t.Context(), create("a", ""))); err != nil {
			t.Errorf("when it follows again: %v", err)
		}
		if text := log(); !strings.Contains(text, "follows the store again") || strings.Contains(text, "restored") {
			t.Errorf("logged %s", text)
		}
	})
}

func TestAStoreThatIsOlderThanItWasIsTold(t *testing.T) {
	running(t, func(s *liveStore) { s.other(create("a", ""), create("b", "")) },
		func(t *testing.T, l *Ledger, s *liveStore, log func() string) {
			s.set(func() { s.history = newHistory(t, 0) })
			s.other(create("a", ""))
			s.breaks <- errors.New("restored")
			time.Sleep(time.Second)
			if sums := l.Sums(); sums.Lag != 0 || sums.Objects["provider"] != 1 {
				t.Errorf("afterwards %+v", sums)
			}
			if text := log(); !strings.Contains(text, "has it been restored?") {
				t.Errorf("logged %s", text)
			}
		})
}

func TestAnEntryThatCannotBeReadDoesNotStopTheRest(t *testing.T) {
	running(t, func(s *liveStore) { s.other(create("a", "")) }, func(t *testing.T, l *Ledger, s *liveStore,
		log func() string) {
		s.set(func() {
			s.revision++
			key := Key{KindTrait, "CUSTOM_BROKEN"}
			s.changes = append(s.changes, []Entry{{Key: key, Value: []byte("no JSON"), Modified: s.revision}})
			close(s.grown)
			s.grown = make(chan struct{})
		})
		if err := l.CatchUp(t.Context()); err != nil {
			t.Errorf("behind the entry: %v", err)
		}
		if text := log(); !strings.Contains(text, "CUSTOM_BROKEN") {
			t.Errorf("logged %s", text)
		}
		s.other(create("b", ""))
		if err := l.Exists(t.Context(), "b"); err != nil {
			t.Error(err)
		}
	})
}
