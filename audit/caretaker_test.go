package audit_test

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/audit"
)

// nobodys are books that a caretaker reads, and what it does about them, in order.
type nobodys struct {
	books    audit.Evidence
	instance error           // what reading a record answers; nil: there is one
	fenced   *croft.Instance // what a fence finds; nil: what it was given
	fails    map[string]error
	steps    []string
	turns    int
}

type (
	nobodysRecords struct {
		audit.Shared // nil, as the next: what has no method here is asked of nobody
		audit.Entries
		*nobodys
	}
	nobodysClaims struct {
		audit.Releaser
		*nobodys
	}
)

func (n *nobodys) step(what string) error {
	n.steps = append(n.steps, what)
	return n.fails[what]
}

// TakeTurn gives the first turn, and no other.
func (n nobodysRecords) TakeTurn(context.Context, time.Duration) (bool, error) {
	n.turns++
	return n.turns == 1, nil
}

func (n nobodysRecords) Evidence(context.Context) (audit.Evidence, error) { return n.books, nil }

func (n nobodysRecords) Instance(context.Context, croft.InstanceID) (croft.Instance, error) {
	return croft.Instance{}, n.instance
}

func (n nobodysRecords) Fence(_ context.Context, inst croft.Instance) (croft.Instance, error) {
	if n.fenced != nil {
		inst = *n.fenced
	}
	return inst, n.step("fence")
}

func (n nobodysRecords) Discard(context.Context, croft.Instance) error { return n.step("discard") }

func (n nobodysClaims) Release(_ context.Context, _ croft.InstanceID, on ...croft.HostID) error {
	what := "release"
	for _, h := range on {
		what += " " + string(h)
	}
	return n.step(what)
}

// turn has a caretaker take one turn, and returns what it did.
func (n *nobodys) turn(t *testing.T) []string {
	t.Helper()
	n.steps, n.turns = nil, 0
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		c := audit.Caretaker{Records: nobodysRecords{nobodys: n}, Shared: nobodysRecords{nobodys: n},
			Inventory: nobodysClaims{nobodys: n},
			Log:       slog.New(slog.DiscardHandler)}
		_ = c.Run(ctx)
	})
	return n.steps
}

// Between two looks at the books and the release somebody may have begun to use the UUID.
func TestACaretakerReleasesALeakedClaimAfterAnotherLook(t *testing.T) {
	n := &nobodys{books: audit.Evidence{
		Hosts:  map[croft.HostID]croft.Host{"h": {ID: "h"}},
		Claims: map[croft.HostID]map[croft.InstanceID]croft.Resources{"h": {"web": {croft.VCPU: 1}}},
	}}
	for _, c := range []struct {
		name  string
		reads error
		steps []string
	}{
		{"somebody has the UUID by now", nil, nil},
		{"nobody can tell", croft.Errorf(croft.Unavailable, "planned"), nil},
		{"nobody has it", croft.Errorf(croft.NotFound, "planned"), []string{"release h"}},
	} {
		n.instance = c.reads
		if got := n.turn(t); !slices.Equal(got, c.steps) {
			t.Errorf("%s: done %q, want %q", c.name, got, c.steps)
		}
	}
}

// A record goes last: it is what the next turn finds a claim by that could not be given back.
func TestACaretakerKeepsTheRecordOfAnAbandonedRequestForItsClaim(t *testing.T) {
	web := croft.Instance{ID: "web", Project: "p", Name: "web", State: croft.StateScheduling, Session: "7", Revision: 3}
	n := &nobodys{books: audit.Evidence{
		Instances: map[croft.InstanceID]croft.Instance{"web": web},
		Names:     []audit.Name{{Project: "p", Name: "web", Instance: "web"}},
	}}
	steps := []string{"fence", "release", "discard"}
	for i, broken := range steps {
		n.fails = map[string]error{broken: croft.Errorf(croft.Unavailable, "planned")}
		if got := n.turn(t); !slices.Equal(got, steps[:i+1]) {
			t.Errorf("%s fails: done %q, want %q", broken, got, steps[:i+1])
		}
	}
	n.fails = nil
	for _, other := range []croft.Instance{
		{ID: "web", State: croft.StateScheduled, Session: "7"}, // its scheduler was in time
		{ID: "web", State: croft.StateScheduling, Session: "8"},
	} {
		n.fenced = &other
		if got := n.turn(t); !slices.Equal(got, steps[:1]) {
			t.Errorf("a fence that finds %s of session %s: done %q", other.State, other.Session, got)
		}
	}
}
