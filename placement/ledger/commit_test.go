package ledger

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"croft"
)

// commitStore is a store with the transactions of a replay. Tests control its watch.
type commitStore struct {
	*replay
	limit  int
	before func(Txn) error // runs before each transaction; an error is the store's answer
	refuse func(Txn) map[Rider]error
	after  func(*Outcome) // may change the answer
	stored []Txn
}

func (s *commitStore) Limit() int                             { return s.limit }
func (s *commitStore) Load(context.Context) (Snapshot, error) { return Snapshot{}, nil }
func (s *commitStore) Watch(context.Context, int64, func(int64, []Entry)) error {
	return errors.ErrUnsupported
}

func (s *commitStore) Commit(_ context.Context, t Txn) (Outcome, error) {
	if s.before != nil {
		if err := s.before(t); err != nil {
			return Outcome{}, err
		}
	}
	out := Outcome{Before: s.revision}
	if s.refuse != nil {
		if out.Refused = s.refuse(t); len(out.Refused) > 0 {
			return out, nil
		}
	}
	if out.Done = s.commit(t); out.Done {
		s.stored = append(s.stored, t)
	}
	out.Revision = s.revision
	if s.after != nil {
		s.after(&out)
	}
	return out, nil
}

// newCommitter creates a committer whose store and memory have the provider a with 2 VCPU.
func newCommitter(t *testing.T) (*committer, *commitStore) {
	s := &commitStore{replay: newReplay(t), limit: 100}
	s.do(create("a", ""), offers("a", "VCPU", 2))
	c := &committer{store: s, memory: newMemory(), patience: patience(time.Second)}
	c.memory.write(func(*State) *State { return s.copy() })
	return c, s
}

// copy returns an independent copy of a replay's state.
func (m *replay) copy() *State {
	m.t.Helper()
	fresh := newState(time.Unix(1000, 0))
	var entries []Entry
	for key, at := range m.modified {
		entries = append(entries, Entry{Key: key, Value: m.value(key), Created: m.created[key], Modified: at})
	}
	if err := fresh.apply(m.revision, entries); err != nil {
		m.t.Fatal(err)
	}
	return fresh
}

// commit writes as many of the requests as fit in one transaction, and returns the others.
func (c *committer) commit(ctx context.Context, requests []*request) []*request {
	return c.write(ctx, c.decide(requests, c.store.Limit()), nil).all()
}

func asked(t *testing.T, decide ...func(*Tx) error) (list []*request) {
	for _, d := range decide {
		list = append(list, &request{ctx: t.Context(), decide: d, done: make(chan error, 1)})
	}
	return list
}

// answers returns the answers received so far; a missing answer is an error.
func answers(list []*request) (got []error) {
	for _, r := range list {
		select {
		case err := <-r.done:
			got = append(got, err)
		default:
		}
	}
	return got
}

func (c *committer) used(t *testing.T) (n int64) {
	c.memory.read(func(s *State) { n = s.providers["a"].Used(s.classes.Get("VCPU").id) })
	return n
}

func TestABatchIsOneTransactionAndInMemoryWhenItIsAnswered(t *testing.T) {
	c, s := newCommitter(t)
	list := asked(t, takes("x", "a", "VCPU", 1), takes("y", "a", "VCPU", 1), takes("z", "a", "VCPU", 1))
	if rest := c.commit(t.Context(), list); len(rest) != 0 {
		t.Fatalf("%d are left", len(rest))
	}
	got := answers(list)
	if len(got) != 3 || got[0] != nil || got[1] != nil || !errors.Is(got[2], croft.Conflict) {
		t.Errorf("answers %v, want two grants and a conflict", got)
	}
	if len(s.stored) != 1 || c.used(t) != 2 || c.conflicts.Load() != 0 || len(s.consumers) != 2 {
		t.Errorf("%d transactions, %d used by %d, %d conflicts", len(s.stored), c.used(t), len(s.consumers),
			c.conflicts.Load())
	}
}

func TestARefusalIsConfirmedByTheStore(t *testing.T) {
	c, s := newCommitter(t)
	asks := 0
	s.before = func(txn Txn) error {
		if asks++; asks == 1 { // another ledger wrote first, and made room
			s.do(offers("a", "VCPU", 9))
			c.memory.write(func(*State) *State { return s.copy() })
		}
		return nil
	}
	list := asked(t, takes("x", "a", "VCPU", 3))
	c.commit(t.Context(), list)
	if got := answers(list); len(got) != 1 || got[0] != nil || c.used(t) != 3 || c.conflicts.Load() != 1 {
		t.Errorf("answers %v, %d used, %d conflicts", got, c.used(t), c.conflicts.Load())
	}
}

func TestWhatReadsNothingNeedsNoStore(t *testing.T) {
	c, s := newCommitter(t)
	s.before = func(Txn) error { return errors.New("asked") }
	list := asked(t, func(*Tx) error { return nil })
	c.commit(t.Context(), list)
	if got := answers(list); len(got) != 1 || got[0] != nil {
		t.Errorf("answers %v", got)
	}
}

func TestAFailureOfTheStoreIsTheAnswerToTheWholeBatch(t *testing.T) {
	c, s := newCommitter(t)
	s.before = func(Txn) error { return errors.New("away") }
	list := asked(t, takes("x", "a", "VCPU", 1), takes("y", "a", "VCPU", 3))
	c.commit(t.Context(), list)
	got := answers(list)
	if len(got) != 2 || !errors.Is(got[0], croft.Unavailable) || !errors.Is(got[1], croft.Unavailable) {
		t.Errorf("answers %v, want Unavailable", got)
	}
	if c.used(t) != 0 {
		t.Errorf("%d used in memory of what nobody knows to be stored", c.used(t))
	}
}

func TestABatchThatIsTooLargeIsDivided(t *testing.T) {
	c, s := newCommitter(t)
	s.do(offers("a", "VCPU", 9))
	c.memory.write(func(*State) *State { return s.copy() })
	s.before = func(txn Txn) error {
		consumers := 0
		for _, w := range txn.Then {
			consumers += count(w.Kind == KindConsumer)
		}
		if consumers > 1 || slices.ContainsFunc(txn.Then, func(w Write) bool { return w.ID == "huge" }) {
			return ErrTooLarge
		}
		return nil
	}
	list := asked(t, takes("x", "a", "VCPU", 1), takes("y", "a", "VCPU", 1), takes("huge", "a", "VCPU", 1))
	rest := c.commit(t.Context(), list)
	if got := answers(list); len(got) != 1 || got[0] != nil || len(rest) != 2 {
		t.Fatalf("answers %v, %d left; want that of the first alone", got, len(rest))
	}
	rest = c.commit(t.Context(), c.commit(t.Context(), rest))
	got := answers(list)
	if len(got) != 2 || got[0] != nil || !errors.Is(got[1], ErrTooLarge) || !errors.Is(got[1], croft.Invalid) ||
		len(rest) != 0 {
		t.Errorf("answers %v, %d left; want one grant and one that is too large", got, len(rest))
	}
}

func TestABatchEndsAtTheLimitOfTheStore(t *testing.T) {
	three := func(names ...string) func(*Tx) error {
		return func(t *Tx) error {
			for _, name := range names {
				if err := t.CreateClass(name); err != nil {
					return err
				}
			}
			return nil
		}
	}
	c, s := newCommitter(t)
	s.limit = 3
	list := asked(t, three("CUSTOM_A", "CUSTOM_B", "CUSTOM_C"), takes("x", "a", "VCPU", 1), createClass("CUSTOM_D"))
	var left []int
	for rest := list; len(rest) > 0; {
		rest = c.commit(t.Context(), rest)
		left = append(left, len(rest))
	}
	if got := answers(list); len(got) != 3 || errors.Join(got...) != nil || !slices.Equal(left, []int{2, 0}) {
		t.Errorf("answers %v, left after each transaction %d", got, left)
	}
	s.limit = 2
	list = asked(t, three("CUSTOM_E", "CUSTOM_F", "CUSTOM_G"), createClass("CUSTOM_H"))
	rest := c.commit(t.Context(), list)
	got := answers(list)
	if len(got) != 2 || !errors.Is(got[0], ErrTooLarge) || got[1] != nil || len(rest) != 0 {
		t.Errorf("answers %v, %d left; want that the first is too large", got, len(rest))
	}
}

func TestARequestThatIsGoneIsNotRun(t *testing.T) {
	c, s := newCommitter(t)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	list := asked(t, takes("x", "a", "VCPU", 1), takes("y", "a", "VCPU", 1))
	list[0].ctx = gone
	c.commit(t.Context(), list)
	got := answers(list)
	if len(got) != 2 || !errors.Is(got[0], croft.Unavailable) || got[1] != nil || len(s.stored) != 1 || c.used(t) != 1 {
		t.Errorf("answers %v, %d used", got, c.used(t))
	}
}

func TestAPanicIsTheAnswerToOneRequest(t *testing.T) {
	c, _ := newCommitter(t)
	list := asked(t, func(*Tx) error { panic("oh") }, takes("y", "a", "VCPU", 1))
	c.commit(t.Context(), list)
	got := answers(list)
	if len(got) != 2 || got[0] == nil || !strings.Contains(got[0].Error(), "panic: oh") || got[1] != nil {
		t.Errorf("answers %v", got)
	}
}

// A change stored earlier by another ledger is not in memory yet, so the watch has to report it before the answer.
func TestAnAnswerWaitsForWhatWasStoredBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := newCommitter(t)
		s.do(create("b", ""))
		s.do(create("c", ""))
		list := asked(t, takes("x", "a", "VCPU", 1))
		ended := make(chan struct{})
		go func() { c.commit(t.Context(), list); close(ended) }()
		synctest.Wait()
		if got := answers(list); len(got) != 0 {
			t.Errorf("answered %v before memory has it", got)
		}
		c.memory.write(func(*State) *State { return s.copy() })
		<-ended
		if got := answers(list); len(got) != 1 || got[0] != nil || len(s.stored) != 1 {
			t.Errorf("answers %v, stored %d times", got, len(s.stored))
		}
	})
}

func TestTheWatchMayBeFasterThanTheAnswer(t *testing.T) {
	c, s := newCommitter(t)
	s.after = func(*Outcome) { c.memory.write(func(*State) *State { return s.copy() }) }
	list := asked(t, takes("x", "a", "VCPU", 1))
	c.commit(t.Context(), list)
	if got := answers(list); len(got) != 1 || got[0] != nil || c.used(t) != 1 {
		t.Errorf("answers %v, %d used", got, c.used(t))
	}
}

func TestWhoAlwaysLosesGetsAConflict(t *testing.T) {
	c, s := newCommitter(t)
	tries := 0
	s.before = func(Txn) error {
		c.memory.write(func(*State) *State { return s.copy() })
		return nil
	}
	s.after = func(out *Outcome) { tries++; out.Done, out.Revision = false, 1 }
	list := asked(t, takes("x", "a", "VCPU", 0), takes("y", "a", "VCPU", 1))
	rest := c.commit(t.Context(), list)
	got := answers(list)
	refused, ok := errors.AsType[*Error](errors.Join(got...))
	if len(got) != 1 || !ok || refused.Code != CodeConcurrentUpdate || len(rest) != 1 || rest[0] != list[1] ||
		tries != maxAttempts || c.conflicts.Load() != maxAttempts {
		t.Errorf("answers %v, %d left, %d tries", got, len(rest), tries)
	}
}

func TestCommitterServesUntilItIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := newCommitter(t)
		requests, stop, ended := make(chan *request), make(chan struct{}), make(chan struct{})
		go func() { c.serve(t.Context(), requests, stop); close(ended) }()
		for _, r := range asked(t, takes("x", "a", "VCPU", 1), takes("y", "a", "VCPU", 1)) {
			requests <- r
			if err := <-r.done; err != nil {
				t.Error(err)
			}
		}
		close(stop)
		<-ended
		if len(s.stored) != 2 {
			t.Errorf("%d transactions, want 2", len(s.stored))
		}
	})
}
