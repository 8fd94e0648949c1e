package hosts_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/hosts"
)

// office has a cloud's records in memory, as far as these tests read them. Its other methods are never called.
type office struct {
	hosts.Instances // nil
	hosts.Orders    // nil
	known           []croft.Host
	broken          error // error of Placement

	members []croft.EtcdMember
	needed  error    // why no member may be removed
	done    []string // names of forgotten records, in order
}

type (
	hostOffice struct {
		allHosts // nil
		*office
	}
	claims struct{ *office }
)

func (o hostOffice) Hosts(context.Context, ...croft.HostID) (map[croft.HostID]croft.Host, error) {
	all := map[croft.HostID]croft.Host{}
	for _, h := range o.known {
		all[h.ID] = h
	}
	return all, nil
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
func (o *office) Overview(context.Context, croft.Project) ([]*croft.Status, error) {
	return nil, nil
}
func (o *office) Some(context.Context, []croft.InstanceID) ([]croft.Status, error) { return nil, nil }

func (o claims) Claims(context.Context, croft.HostID) (map[croft.InstanceID]croft.Resources, error) {
	return nil, o.broken
}
func (o claims) Providers(context.Context) ([]croft.Provider, error) { return nil, o.broken }
func (o claims) Provider(context.Context, croft.HostID) (croft.Provider, error) {
	return croft.Provider{}, cmp.Or(o.broken, error(croft.NotFound))
}
func (o claims) Candidates(context.Context, string, int) ([]croft.Candidate, error) {
	return nil, o.broken
}
func (o claims) ClaimOf(_ context.Context, id croft.InstanceID) (croft.Claim, error) {
	return croft.Claim{Instance: id}, o.broken
}
func (o claims) Reclaim(context.Context, croft.Claim, croft.Owner, croft.Candidate) error {
	return o.broken
}
func (o claims) Release(context.Context, croft.InstanceID, croft.Permit) error { return o.broken }
func (o claims) RemoveProvider(context.Context, croft.HostID) error            { return o.broken }

func (o *office) fleet(t *testing.T) *hosts.Fleet {
	t.Helper()
	f, err := hosts.New(hosts.Config{Partition: "p", Hosts: hostOffice{office: o}, Members: o, Instances: o, Orders: o,
		Claims: claims{o}})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestAForgottenHostLeavesEtcdLast(t *testing.T) {
	o := &office{known: []croft.Host{croft.Host{ID: "a", Name: "one"}}}
	o.members = []croft.EtcdMember{{Host: "a", Name: "one", Role: croft.MemberFollows},
		{Host: "b", Name: "half", Role: croft.MemberSilent}}
	all, err := o.fleet(t).List(t.Context())
	if err != nil || len(all) != 2 || all[0].Name != "half" || len(all[0].Problems) != 2 ||
		all[1].Etcd != croft.MemberFollows {
		t.Errorf("got %+v, %v; want one, and half that is forgotten only half", all, err)
	}
	for _, name := range []string{"one", "half"} {
		if _, err := o.fleet(t).Forget(t.Context(), name, false); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if want := []string{"host a", "member a", "host b", "member b"}; !slices.Equal(o.done, want) {
		t.Errorf("done: %q, want %q", o.done, want)
	}
}

func TestAHostWhoseEtcdIsNeededIsNotForgotten(t *testing.T) {
	o := &office{known: []croft.Host{croft.Host{ID: "a", Name: "one"}}}
	o.needed = croft.Errorf(croft.Conflict, "the others are too few")
	if _, err := o.fleet(t).Forget(t.Context(), "one", true); croft.KindOf(err) != croft.Conflict ||
		len(o.done) > 0 {
		t.Errorf("got %v, done %q; want a conflict, and nothing done", err, o.done)
	}
}

func TestHostsAreListedWithoutPlacement(t *testing.T) {
	o := &office{known: []croft.Host{croft.Host{ID: "h", Name: "one", Alive: true, Drained: true}}}
	o.broken = croft.Errorf(croft.Unavailable, "placement does not answer")
	all, err := o.fleet(t).List(t.Context())
	if len(all) != 1 || all[0].State() != "drained" || all[0].Offered != nil || !errors.Is(err, croft.Unavailable) {
		t.Errorf("got %+v, %v; want the host, and why there are no claims", all, err)
	}
	if _, err := o.fleet(t).Drain(t.Context(), "one"); err != nil {
		t.Errorf("a drain needs no Placement: %v", err)
	}
}

func TestHostsOfOneNameAreNamedByUUID(t *testing.T) {
	o := &office{known: []croft.Host{croft.Host{ID: "a", Name: "one"}, croft.Host{ID: "b", Name: "one"},
		croft.Host{ID: "c", Name: "two"}}}
	all, err := o.fleet(t).List(t.Context())
	if err != nil || len(all) != 3 || len(all[0].Problems) != 1 || len(all[1].Problems) != 1 ||
		len(all[2].Problems) != 0 {
		t.Errorf("got %+v, %v; want a problem with each of the two", all, err)
	}
	if _, err := o.fleet(t).Find(t.Context(), "one"); !errors.Is(err, croft.Conflict) {
		t.Errorf("got %v, want to be asked which", err)
	}
	if _, err := o.fleet(t).Find(t.Context(), "three"); !errors.Is(err, croft.NotFound) {
		t.Errorf("got %v, want that there is none", err)
	}
}

func TestHostsWhoseAgentsRunOnOneMachineSaySo(t *testing.T) {
	on := func(id croft.HostID, boot, virt string, alive bool) croft.Host {
		return croft.Host{ID: id, Name: "host-" + string(id), Boot: boot, VirtType: virt, Alive: alive}
	}
	o := &office{known: []croft.Host{on("a", "m1", "kvm", true), on("b", "m1", "kvm", true), on("c", "m2", "kvm", true),
		on("d", "m1", "kvm", false), on("e", "m3", "sim", true), on("f", "m3", "sim", true), on("g", "", "kvm", true),
		on("h", "", "kvm", true)}}
	all, err := o.fleet(t).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[croft.HostID]string{"a": "host-b", "b": "host-a"}
	for _, h := range all {
		notes := strings.Join(h.Notes, "; ")
		if other := want[h.ID]; len(h.Problems) > 0 || (notes == "") != (other == "") ||
			!strings.Contains(notes, "that of host "+other) && other != "" {
			t.Errorf("host %s: %q and %q", h.ID, h.Problems, h.Notes)
		}
	}
}

func TestHostsWhoseClockDiffersSaySo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := func(id croft.HostID, seen time.Duration, alive bool) croft.Host {
			return croft.Host{ID: id, Name: "host-" + string(id), Alive: alive, Seen: time.Now().Add(seen)}
		}
		o := &office{known: []croft.Host{at("agrees", -90*time.Second, true), at("silent", -time.Hour, false),
			at("ahead", time.Hour, true), at("behind", -time.Hour, true), at("a little", 10*time.Second, true),
			{ID: "new", Name: "host-new", Alive: true}}}
		all, err := o.fleet(t).List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want := map[croft.HostID]int64{"ahead": 3600, "behind": -3540, "a little": 10}
		said := map[croft.HostID]string{"ahead": "at least 1h ahead of", "behind": "at least 59m behind"}
		for _, h := range all {
			problems := strings.Join(h.Problems, "; ")
			if h.ClockDifference != want[h.ID] || !strings.Contains(problems, said[h.ID]) ||
				(said[h.ID] == "") != (problems == "") || h.LargeClockDifference() != (said[h.ID] != "") {
				t.Errorf("host %s: %d, %q", h.ID, h.ClockDifference, problems)
			}
		}
	})
}

func TestWhatCannotMoveStays(t *testing.T) {
	o := &office{known: []croft.Host{croft.Host{ID: "h", Name: "one", Alive: true}}}
	h := hosts.Host{Host: croft.Host{ID: "h", Name: "one", Alive: true}, Instances: []croft.Status{
		{Instance: croft.Instance{ID: "disk"}},
		{Instance: croft.Instance{ID: "grouped", Spec: croft.Spec{
			InstanceSettings: croft.InstanceSettings{Ephemeral: true,
				Affinities: []croft.Affinity{{Group: "g", Rule: croft.Apart}}}}}},
		{Instance: croft.Instance{ID: "nowhere", Spec: croft.Spec{
			InstanceSettings: croft.InstanceSettings{Ephemeral: true}}}},
		{Instance: croft.Instance{ID: "going", State: croft.StateDestroying, Spec: croft.Spec{
			InstanceSettings: croft.InstanceSettings{Ephemeral: true}}}},
	}}
	all, err := o.fleet(t).MoveAll(t.Context(), h)
	if err != nil || len(all) != 3 {
		t.Fatalf("got %+v, %v; want three, since the last is on its way out", all, err)
	}
	for i, why := range []string{"its disk is here, and the agent of its host is of an older version; upgrade it",
		"it is in group g, whose rule a move might break", "it fits on no other host"} {
		if all[i].Stays != why {
			t.Errorf("got %q, want %q", all[i].Stays, why)
		}
	}
	h.Alive = false
	if _, err := o.fleet(t).MoveAll(t.Context(), h); !errors.Is(err, croft.Unavailable) {
		t.Errorf("from a silent host: got %v, want that it cannot be", err)
	}
}
