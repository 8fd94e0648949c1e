package audit_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/hosts/audit"
)

// nobodys is the evidence that a caretaker reads; it records the steps of the caretaker, in order.
type nobodys struct {
	books    audit.Evidence
	instance error                                // returned by Instance; nil: the instance exists
	fenced   *croft.Instance                      // returned by Fence; nil: the given record
	stored   map[croft.InstanceID]croft.Resources // claims on shared storage
	unread   error                                // they cannot be read
	fails    map[string]error
	steps    []string
	turns    int
}

type (
	nobodysRecords struct {
		audit.Shared // nil, as the next: methods not defined here are never called
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

// TakeTurn grants the first turn only.
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

func (n nobodysRecords) Destroy(_ context.Context, inst croft.Instance) error {
	return n.step("destroy " + string(inst.ID))
}

func (n nobodysRecords) Abandon(_ context.Context, inst croft.Instance) (croft.Instance, error) {
	inst.State = croft.StateScheduling
	return inst, n.step("abandon " + string(inst.ID))
}

func (n nobodysRecords) NoteAnnounced(_ context.Context, inst croft.Instance) error {
	err := n.step("note " + string(inst.ID))
	if err == nil {
		inst.Announced = inst.Expires
		n.books.Instances[inst.ID] = inst
	}
	return err
}

func (n nobodysRecords) Discard(context.Context, croft.Instance) error { return n.step("discard") }

// Claims returns the claims on the shared storage.
func (n nobodysClaims) Claims(context.Context, croft.HostID) (map[croft.InstanceID]croft.Resources, error) {
	return n.stored, n.unread
}

func (n nobodysClaims) Release(ctx context.Context, _ croft.InstanceID, may croft.Permit) error {
	on, err := may(ctx)
	if err != nil {
		return err
	}
	what := "release"
	for _, h := range on {
		what += " " + string(h)
	}
	return n.step(what)
}

// turn runs one turn of a caretaker and returns its steps.
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

// Between two looks at the evidence and the release, the UUID may have come into use again.
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

// No agent sees a claim on shared storage whose request was undone before the claim was made, late.
func TestACaretakerReleasesALeakedClaimOnSharedStorage(t *testing.T) {
	mounts := []croft.HostStorage{{ID: "nfs", Name: "nfs1"}}
	n := &nobodys{instance: croft.Errorf(croft.NotFound, "planned"), books: audit.Evidence{
		Hosts: map[croft.HostID]croft.Host{"h": {ID: "h", Storages: mounts}, "i": {ID: "i", Storages: mounts}},
		Instances: map[croft.InstanceID]croft.Instance{"web": {ID: "web", Project: "p", Name: "web",
			State: croft.StateLost, Storage: "nfs"}},
		Names: []audit.Name{{Project: "p", Name: "web", Instance: "web"}},
		Volumes: map[croft.VolumeID]croft.Volume{"data": {ID: "data", Host: "h", Storage: "nfs", SizeGB: 1,
			ClaimedGB: 1}},
	}}
	for _, c := range []struct {
		of    croft.InstanceID
		steps []string
	}{
		{"web", nil},
		{"data", nil},
		{"gone", []string{"release nfs"}},
	} {
		n.stored = map[croft.InstanceID]croft.Resources{c.of: {croft.DiskGB: 1}}
		if got := n.turn(t); !slices.Equal(got, c.steps) {
			t.Errorf("the claim of %s: done %q, want %q", c.of, got, c.steps)
		}
	}
}

func TestACaretakerThatCannotReadTheClaimsOnSharedStorageGoesOn(t *testing.T) {
	n := &nobodys{instance: croft.Errorf(croft.NotFound, "planned"), unread: croft.Errorf(croft.Unavailable, "planned"),
		books: expiring(croft.StateScheduled, time.Unix(1, 0))}
	n.books.Hosts = map[croft.HostID]croft.Host{"h": {ID: "h",
		Storages: []croft.HostStorage{{ID: "nfs", Name: "nfs1"}}}}
	if got := n.turn(t); !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "destroy ") }) {
		t.Errorf("done %q, want the end of an instance that has expired", got)
	}
}

// The record goes last: the next turn needs it to find a claim that could not be released.
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
