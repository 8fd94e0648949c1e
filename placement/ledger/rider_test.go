package ledger

import (
	"errors"
	"slices"
	"testing"

	"croft"
)

// rider is a Rider of the tests.
type rider struct {
	size  int
	alone []string
}

func (r *rider) Size() int       { return r.size }
func (r *rider) Alone() []string { return r.alone }

// withRiders gives requests their riders.
func withRiders(list []*request, riders ...*rider) []*request {
	for i, r := range riders {
		if r != nil {
			list[i].rider = r
		}
	}
	return list
}

func TestOnlyTheRequestOfARefusedRiderFails(t *testing.T) {
	c, s := newCommitter(t)
	refused, taken := &rider{}, croft.Errorf(croft.Conflict, "the name is taken")
	tries := 0
	s.refuse = func(txn Txn) map[Rider]error {
		if tries++; slices.Contains(txn.Riders, Rider(refused)) {
			return map[Rider]error{refused: taken}
		}
		return nil
	}
	other := &rider{}
	list := withRiders(asked(t, takes("x", "a", "VCPU", 1), takes("y", "a", "VCPU", 1), takes("z", "a", "VCPU", 1)),
		other, refused, nil)
	if rest := c.commit(t.Context(), list); len(rest) != 0 {
		t.Errorf("%d requests are left", len(rest))
	}
	got := answers(list)
	// z fits because y, which preceded it, is refused.
	if got[0] != nil || !errors.Is(got[1], taken) || got[2] != nil || tries != 2 || c.used(t) != 2 {
		t.Errorf("got %v after %d tries, %d used", got, tries, c.used(t))
	}
	if len(s.stored) != 1 || !slices.Equal(s.stored[0].Riders, []Rider{other}) {
		t.Errorf("stored %+v", s.stored)
	}
	if c.conflicts.Load() != 0 {
		t.Error("a refused rider counts as another ledger's transaction")
	}
}

func TestARiderThatAnEarlierTryHasWrittenIsAnsweredWithSuccess(t *testing.T) {
	c, s := newCommitter(t)
	written := &rider{}
	s.refuse = func(txn Txn) map[Rider]error { return map[Rider]error{written: nil} }
	list := withRiders(asked(t, takes("x", "a", "VCPU", 1)), written)
	c.commit(t.Context(), list)
	if got := answers(list); got[0] != nil || len(s.stored) != 0 {
		t.Errorf("got %v, stored %v", got, s.stored)
	}
}

func TestWhatOneRiderHasAnotherWaitsFor(t *testing.T) {
	c, s := newCommitter(t)
	list := withRiders(asked(t, takes("x", "a", "VCPU", 1), takes("y", "a", "VCPU", 1), takes("z", "a", "VCPU", 1)),
		&rider{alone: []string{"web"}}, &rider{alone: []string{"db", "web"}}, &rider{alone: []string{"db"}})
	rest := c.commit(t.Context(), list)
	if !slices.Equal(rest, list[1:2]) {
		t.Fatalf("%d wait", len(rest))
	}
	if len(s.stored) != 1 || len(s.stored[0].Riders) != 2 {
		t.Errorf("stored %+v", s.stored)
	}
	c.commit(t.Context(), rest)
	if got := answers(list); got[0] != nil || got[2] != nil || !errors.Is(got[1], croft.Conflict) {
		t.Errorf("got %v, want that nothing is left for the one that waited", got)
	}
}

func TestRidersCountForTheLimitOfTheStore(t *testing.T) {
	c, s := newCommitter(t)
	s.limit = 20
	list := withRiders(asked(t, takes("x", "a", "VCPU", 1), takes("y", "a", "VCPU", 1)), &rider{size: 12},
		&rider{size: 12})
	rest := c.commit(t.Context(), list)
	if !slices.Equal(rest, list[1:]) {
		t.Fatalf("%d wait", len(rest))
	}
	rest = c.commit(t.Context(), withRiders(rest, &rider{size: 30}))
	if got := answers(list); got[0] != nil || !errors.Is(got[1], ErrTooLarge) || len(rest) != 0 {
		t.Errorf("got %v, %d wait", got, len(rest))
	}
}

// A rider whose request is refused by the ledger itself does not reach the store.
func TestTheRiderOfARefusedRequestIsLeftBehind(t *testing.T) {
	c, s := newCommitter(t)
	list := withRiders(asked(t, takes("x", "a", "VCPU", 3)), &rider{})
	c.commit(t.Context(), list)
	if got := answers(list); !errors.Is(got[0], croft.Conflict) || len(s.stored[0].Riders) != 0 {
		t.Errorf("got %v, stored %+v", got, s.stored)
	}
}
