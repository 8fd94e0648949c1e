package operator_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/internal/books"
	"croft/operator"
)

// office is a cloud's books in memory, as far as these tests read them. What it does
// not have is asked of nobody.
type office struct {
	operator.Records // nil, as the next
	operator.Ledger
	looks  func(n int) books.Books // what the n-th look reads
	looked int
	asked  []croft.HostID
	broken error // what Placement answers

	members []croft.EtcdMember
	needed  error    // why none of them may go
	done    []string // what was forgotten, in order
}

type (
	hostOffice struct{ *office }
	claims     struct{ *office }
	agents     struct{ *office }
)

func (o hostOffice) Hosts(context.Context, ...croft.HostID) (map[croft.HostID]croft.Host, error) {
	return o.looks(1).Hosts, nil
}
func (o hostOffice) Drain(context.Context, croft.HostID) error  { return nil }
func (o hostOffice) Enable(context.Context, croft.HostID) error { return nil }
func (o hostOffice) Accept(context.Context, croft.HostID) error { return nil }
func (o hostOffice) ForgetHost(_ context.Context, h croft.HostID) error {
	o.done = append(o.done, "host "+string(h))
	return nil
}

func (o *office) EtcdMembers(context.Context) ([]croft.EtcdMember, error) { return o.members, nil }
func (o *office) MayRemoveEtcdMember(context.Context, croft.HostID) error { return o.needed }
func (o *office) RemoveEtcdMember(_ context.Context, h croft.HostID) error {
	if o.needed == nil {
		o.done = append(o.done, "member "+string(h))
	}
	return o.needed
}

func (o *office) List(context.Context, croft.Project) ([]croft.Status, error) { return nil, nil }

func (o *office) Books(context.Context) (books.Books, error) {
	o.looked++
	b := o.looks(o.looked)
	b.Hosts = maps.Clone(b.Hosts)
	b.Claims, b.Holdings = map[croft.HostID]map[croft.InstanceID]croft.Resources{}, map[croft.HostID]books.Holding{}
	return b, nil
}

func (o claims) Claims(context.Context, croft.HostID) (map[croft.InstanceID]croft.Resources, error) {
	return nil, o.broken
}
func (o claims) Providers(context.Context) ([]croft.Provider, error) { return nil, o.broken }
func (o claims) Candidates(context.Context, string, int) ([]croft.Candidate, error) {
	return nil, o.broken
}
func (o claims) ClaimOf(_ context.Context, id croft.InstanceID) (croft.Claim, error) {
	return croft.Claim{Instance: id}, o.broken
}
func (o claims) Reclaim(context.Context, croft.Claim, croft.Project, croft.Candidate) error {
	return o.broken
}
func (o claims) Release(context.Context, croft.InstanceID, ...croft.HostID) error { return o.broken }
func (o claims) RemoveProvider(context.Context, croft.HostID) error               { return o.broken }

func (o agents) Holding(_ context.Context, h croft.Host) (books.Holding, error) {
	o.asked = append(o.asked, h.ID)
	return books.Holding{}, nil
}

func (o agents) RemoveFiles(context.Context, croft.Host, croft.InstanceID) error { return nil }

func (o *office) operator(t *testing.T) *operator.Operator {
	t.Helper()
	op, err := operator.New(operator.Config{Partition: "p", Hosts: hostOffice{o}, Members: o, Records: o, Ledger: o,
		Claims: claims{o}, Agents: agents{o}, Pause: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return op
}

// always is an office whose books stay as they are.
func always(b books.Books) *office { return &office{looks: func(int) books.Books { return b }} }

func withHosts(hosts ...croft.Host) books.Books {
	b := books.Books{Hosts: map[croft.HostID]croft.Host{}}
	for _, h := range hosts {
		b.Hosts[h.ID] = h
	}
	return b
}

func TestAForgottenHostLeavesEtcdLast(t *testing.T) {
	o := always(withHosts(croft.Host{ID: "a", Name: "one"}))
	o.members = []croft.EtcdMember{{Host: "a", Name: "one", Role: croft.MemberFollows},
		{Host: "b", Name: "half", Role: croft.MemberSilent}}
	all, err := o.operator(t).List(t.Context())
	if err != nil || len(all) != 2 || all[0].Name != "half" || len(all[0].Problems) != 2 ||
		all[1].Etcd != croft.MemberFollows {
		t.Errorf("got %+v, %v; want one, and half that is forgotten only half", all, err)
	}
	for _, name := range []string{"one", "half"} {
		if _, err := o.operator(t).Forget(t.Context(), name, false); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if want := []string{"host a", "member a", "host b", "member b"}; !slices.Equal(o.done, want) {
		t.Errorf("done: %q, want %q", o.done, want)
	}
}

func TestAHostWhoseEtcdIsNeededIsNotForgotten(t *testing.T) {
	o := always(withHosts(croft.Host{ID: "a", Name: "one"}))
	o.needed = croft.Errorf(croft.Conflict, "the others are too few")
	if _, err := o.operator(t).Forget(t.Context(), "one", true); croft.KindOf(err) != croft.Conflict ||
		len(o.done) > 0 {
		t.Errorf("got %v, done %q; want a conflict, and nothing done", err, o.done)
	}
}

var ghost = books.Name{Project: "p", Name: "web", Instance: "ghost"}

func TestAHealthyAuditLooksOnce(t *testing.T) {
	o := always(withHosts(croft.Host{ID: "h", Name: "one", Alive: true}))
	report, err := o.operator(t).Audit(t.Context())
	if err != nil || len(report.Differences) != 0 || o.looked != 1 {
		t.Errorf("got %+v, %v after %d looks", report, err, o.looked)
	}
}

func TestAnAuditBelievesWhatTwoLooksFind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		passing := &office{looks: func(n int) books.Books {
			if n == 1 {
				return books.Books{Names: []books.Name{ghost}}
			}
			return books.Books{}
		}}
		if report, err := passing.operator(t).Audit(t.Context()); err != nil || len(report.Differences) != 0 ||
			passing.looked != 2 {
			t.Errorf("what passed: got %+v, %v after %d looks", report, err, passing.looked)
		}
		lasting := always(books.Books{Names: []books.Name{ghost}})
		if report, err := lasting.operator(t).Audit(t.Context()); err != nil || len(report.Differences) != 1 {
			t.Errorf("what lasts: got %+v, %v", report, err)
		}
	})
}

func TestSilentHostsAreUncheckedAndNotAsked(t *testing.T) {
	o := always(withHosts(croft.Host{ID: "h", Name: "one"}))
	report, err := o.operator(t).Audit(t.Context())
	if err != nil || len(report.Unchecked) != 1 || report.Unchecked[0].Why != "it is silent" || len(o.asked) != 0 {
		t.Errorf("got %+v, %v; asked %v", report, err, o.asked)
	}
}

func TestAnAuditWithoutPlacementIsNone(t *testing.T) {
	o := always(withHosts(croft.Host{ID: "h", Name: "one", Alive: true}))
	o.broken = croft.Errorf(croft.Unavailable, "placement does not answer")
	if _, err := o.operator(t).Audit(t.Context()); !errors.Is(err, croft.Unavailable) {
		t.Errorf("got %v, want that it cannot be told", err)
	}
}

func TestWhatMightHarmIsNotMended(t *testing.T) {
	o := always(books.Books{})
	if err := o.operator(t).Mend(t.Context(), books.Difference{Kind: books.LeakedClaim,
		Instance: "ghost"}); !errors.Is(err, croft.Conflict) {
		t.Errorf("got %v, want a conflict", err)
	}
}

func TestWhatChangedSinceIsNotMended(t *testing.T) {
	o := always(books.Books{})
	err := o.operator(t).Mend(t.Context(), books.Difference{Kind: books.MissingOrder, Instance: "web", Revision: 7,
		Mendable: true})
	if !errors.Is(err, croft.Conflict) {
		t.Errorf("got %v, want a conflict", err)
	}
}

func TestHostsAreListedWithoutPlacement(t *testing.T) {
	o := always(withHosts(croft.Host{ID: "h", Name: "one", Alive: true, Drained: true}))
	o.broken = croft.Errorf(croft.Unavailable, "placement does not answer")
	all, err := o.operator(t).List(t.Context())
	if len(all) != 1 || all[0].State() != "drained" || all[0].Offered != nil || !errors.Is(err, croft.Unavailable) {
		t.Errorf("got %+v, %v; want the host, and why there are no claims", all, err)
	}
	if _, err := o.operator(t).Drain(t.Context(), "one"); err != nil {
		t.Errorf("a drain needs no Placement: %v", err)
	}
}

func TestHostsOfOneNameAreNamedByUUID(t *testing.T) {
	o := always(withHosts(croft.Host{ID: "a", Name: "one"}, croft.Host{ID: "b", Name: "one"},
		croft.Host{ID: "c", Name: "two"}))
	all, err := o.operator(t).List(t.Context())
	if err != nil || len(all) != 3 || len(all[0].Problems) != 1 || len(all[1].Problems) != 1 ||
		len(all[2].Problems) != 0 {
		t.Errorf("got %+v, %v; want a problem with each of the two", all, err)
	}
	if _, err := o.operator(t).Find(t.Context(), "one"); !errors.Is(err, croft.Conflict) {
		t.Errorf("got %v, want to be asked which", err)
	}
	if _, err := o.operator(t).Find(t.Context(), "three"); !errors.Is(err, croft.NotFound) {
		t.Errorf("got %v, want that there is none", err)
	}
}

func TestAnInstanceThatIsNotEphemeralStays(t *testing.T) {
	o := always(withHosts(croft.Host{ID: "h", Name: "one", Alive: true}))
	h := operator.Host{Host: croft.Host{ID: "h", Name: "one", Alive: true}, Instances: []croft.Status{
		{Instance: croft.Instance{ID: "disk"}},
		{Instance: croft.Instance{ID: "grouped", Spec: croft.Spec{Ephemeral: true,
			Affinities: []croft.Affinity{{Group: "g", Rule: croft.Apart}}}}},
		{Instance: croft.Instance{ID: "nowhere", Spec: croft.Spec{Ephemeral: true}}},
		{Instance: croft.Instance{ID: "going", State: croft.StateDestroying, Spec: croft.Spec{Ephemeral: true}}},
	}}
	all, err := o.operator(t).MoveAll(t.Context(), h)
	if err != nil || len(all) != 3 {
		t.Fatalf("got %+v, %v; want three, since the last is on its way out", all, err)
	}
	for i, why := range []string{"it is not ephemeral: its disk is here",
		"it is in group g, whose rule a move might break", "no other host has room for it"} {
		if all[i].Stays != why {
			t.Errorf("got %q, want %q", all[i].Stays, why)
		}
	}
	h.Alive = false
	if _, err := o.operator(t).MoveAll(t.Context(), h); !errors.Is(err, croft.Unavailable) {
		t.Errorf("from a silent host: got %v, want that it cannot be", err)
	}
}
