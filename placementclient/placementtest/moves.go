package placementtest

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"croft"
)

// reclaim moves claims between two providers that these claims fill.
func (s *suite) reclaim(t *testing.T) {
	from, to := s.add(t, host("from")), s.add(t, host("to"))
	id, other := croft.NewInstanceID(), croft.NewInstanceID()
	all := croft.Resources{croft.VCPU: 4}
	on := func(p croft.Provider) croft.Candidate {
		return croft.Candidate{Allocations: map[croft.HostID]croft.Resources{p.ID: all}}
	}
	if err := s.take(t, from, id, all); err != nil {
		t.Fatal(err)
	}
	had := s.claimOf(t, id)
	if err := s.client.Reclaim(t.Context(), had, owner, on(to)); err != nil {
		t.Fatal(err)
	}
	s.uses(t, from, 0)
	s.uses(t, to, 4)
	if err := s.client.Reclaim(t.Context(), had, owner, on(from)); !errors.Is(err, croft.Conflict) {
		t.Errorf("by somebody who has not seen the last change: got %v, want a conflict", err)
	}
	s.uses(t, to, 4)
	if err := s.client.Reclaim(t.Context(), s.claimOf(t, id), owner, on(to)); err != nil {
		t.Errorf("to where it is: %v", err)
	}
	for _, rival := range []croft.InstanceID{other, croft.NewInstanceID()} {
		if err := s.take(t, from, rival, all); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.client.Reclaim(t.Context(), s.claimOf(t, id), owner, on(from)); !errors.Is(err, croft.NoCapacity) {
		t.Errorf("to where there is no room: got %v, want no capacity", err)
	}
	gone := host("gone") // was never there, or is not any more
	if err := s.client.Reclaim(t.Context(), s.claimOf(t, id), owner, on(gone)); !errors.Is(err, croft.NoCapacity) {
		t.Errorf("to a host that has gone: got %v, want no capacity", err)
	}
	s.uses(t, to, 4) // unchanged
	had = s.claimOf(t, id)
	if err := s.client.Release(t.Context(), id, croft.On()); err != nil {
		t.Fatal(err)
	}
	if err := s.client.Reclaim(t.Context(), had, owner, on(to)); !errors.Is(err, croft.Conflict) {
		t.Errorf("of a claim that was released: got %v, want a conflict", err)
	}
	s.uses(t, to, 0)
	if err := s.client.Reclaim(t.Context(), s.claimOf(t, id), owner, on(to)); err != nil {
		t.Errorf("of an instance that has no claim: %v", err)
	}
	s.uses(t, to, 4)
}

func (s *suite) claimOf(t *testing.T, id croft.InstanceID) croft.Claim {
	t.Helper()
	claim, err := s.client.ClaimOf(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return claim
}

// reuse gives the UUID of a first claim to a second one, and has clients that have read the first claim change and
// release it. OpenStack's Placement cannot distinguish the two claims.
func (s *suite) reuse(t *testing.T) {
	here, there := s.add(t, host("first")), s.add(t, host("second"))
	id, some := croft.NewInstanceID(), croft.Resources{croft.VCPU: 1}
	if err := s.take(t, here, id, some); err != nil {
		t.Fatal(err)
	}
	had := s.claimOf(t, id)
	if had.Version == "" {
		t.Skip("this Placement tells no versions")
	}
	again := func(ctx context.Context) ([]croft.HostID, error) {
		if err := s.client.Release(ctx, id, croft.On()); err != nil {
			t.Fatal(err)
		}
		return nil, s.take(t, here, id, some)
	}
	if err := s.client.Release(t.Context(), id, again); !errors.Is(err, croft.Conflict) {
		t.Errorf("released although it is another claim by now: got %v, want a conflict", err)
	}
	s.uses(t, here, 1)
	moved := croft.Candidate{Allocations: map[croft.HostID]croft.Resources{there.ID: some}}
	if err := s.client.Reclaim(t.Context(), had, owner, moved); !errors.Is(err, croft.Conflict) {
		t.Errorf("moved although it is another claim by now: got %v, want a conflict", err)
	}
	s.uses(t, here, 1)
	s.uses(t, there, 0)
}

// releaseWhere releases a claim on the named hosts only.
func (s *suite) releaseWhere(t *testing.T) {
	here, there := s.add(t, host("here")), s.add(t, host("there"))
	id := croft.NewInstanceID()
	if err := s.take(t, here, id, croft.Resources{croft.VCPU: 1}); err != nil {
		t.Fatal(err)
	}
	if err := s.client.Release(t.Context(), id, croft.On(there.ID)); err != nil {
		t.Fatal(err)
	}
	s.uses(t, here, 1)
	for range 2 {
		if err := s.client.Release(t.Context(), id, croft.On(there.ID, here.ID)); err != nil {
			t.Fatal(err)
		}
		s.uses(t, here, 0)
	}
	if claim := s.claimOf(t, id); len(claim.Allocations) > 0 || claim.Generation != nil {
		t.Errorf("got %+v, want no claim", claim)
	}
}

// shrunk changes a claim on a provider that offers less than is claimed, and less than the claim.
func (s *suite) shrunk(t *testing.T) {
	p, to, id := host("shrunk"), s.add(t, host("roomy")), croft.NewInstanceID()
	s.add(t, p)
	on := func(cpus, there int64) croft.Candidate {
		c := croft.Candidate{Allocations: map[croft.HostID]croft.Resources{p.ID: {croft.VCPU: cpus}}}
		if there > 0 {
			c.Allocations[to.ID] = croft.Resources{croft.VCPU: there}
		}
		return c
	}
	for _, claimant := range []croft.InstanceID{id, croft.NewInstanceID()} {
		if err := s.take(t, p, claimant, croft.Resources{croft.VCPU: 3}); err != nil {
			t.Fatal(err)
		}
	}
	old := s.claimOf(t, id)
	for range 2 { // one change might be the client's own, whose answer was lost
		if err := s.client.Reclaim(t.Context(), s.claimOf(t, id), owner, on(3, 1)); err != nil {
			t.Fatal(err)
		}
	}
	p.Inventories[croft.VCPU] = croft.Inventory{Total: 1, MinUnit: 1, MaxUnit: 1, StepSize: 1, AllocationRatio: 2}
	s.add(t, p)

	if err := s.client.Reclaim(t.Context(), s.claimOf(t, id), owner, on(3, 1)); err != nil {
		t.Errorf("the present claim: %v", err)
	}
	if err := s.client.Reclaim(t.Context(), old, owner, on(3, 1)); !errors.Is(err, croft.Conflict) {
		t.Errorf("the present claim, by somebody who has not seen it: got %v, want a conflict", err)
	}
	for _, more := range []croft.Candidate{on(4, 1), on(4, 0)} {
		if err := s.client.Reclaim(t.Context(), s.claimOf(t, id), owner, more); !errors.Is(err, croft.NoCapacity) {
			t.Errorf("more on the full provider: got %v, want no capacity", err)
		}
	}
	s.uses(t, p, 6)
	s.uses(t, to, 1)
	if old.Version != "" { // croft's own: OpenStack's refuses what leaves the claim on a full provider as it is
		if err := s.client.Reclaim(t.Context(), s.claimOf(t, id), owner, on(3, 4)); err != nil {
			t.Errorf("more elsewhere: %v", err)
		}
		s.uses(t, to, 4)
		if err := s.client.Release(t.Context(), id, croft.On(to.ID)); err != nil {
			t.Errorf("without the other one: %v", err)
		}
		s.uses(t, to, 0)
		if err := s.client.Reclaim(t.Context(), s.claimOf(t, id), owner, on(1, 0)); err != nil {
			t.Errorf("less than before: %v", err)
		}
		s.uses(t, p, 4)
	}
	if err := s.client.Reclaim(t.Context(), s.claimOf(t, id), owner, croft.Candidate{
		Allocations: map[croft.HostID]croft.Resources{to.ID: {croft.VCPU: 1}}}); err != nil {
		t.Errorf("away from it: %v", err)
	}
	s.uses(t, p, 3)
	s.uses(t, to, 1)
}

// shared claims a disk from a provider that two of three hosts share, also for a certain host. A query that has all in
// one group finds no candidate then, because the provider is in the tree of no host.
func (s *suite) shared(t *testing.T) {
	on := uuid.NewString()
	a, b, other := host("shared-a"), host("shared-b"), host("shared-other")
	for _, p := range []*croft.Provider{&a, &b, &other} {
		delete(p.Inventories, croft.DiskGB)
		if p != &other {
			p.Aggregates = append(p.Aggregates, on)
		}
		s.add(t, *p)
	}
	disk := host("shared-disk")
	disk.Inventories = map[croft.ResourceClass]croft.Inventory{croft.DiskGB: disk.Inventories[croft.DiskGB]}
	disk.Traits, disk.Aggregates = []croft.Trait{"MISC_SHARES_VIA_AGGREGATE"}, []string{on}
	s.add(t, disk)

	apart := func(h croft.Provider, size string) []croft.Candidate {
		return s.candidates(t, query(h, "VCPU:1")+"&resources_DISK_GB=DISK_GB:"+size)
	}
	if list := s.candidates(t, query(a, "VCPU:1,DISK_GB:60")); len(list) != 0 {
		t.Errorf("in one group there are candidates: %v", list)
	}
	if list := apart(other, "60"); len(list) != 0 {
		t.Errorf("a host that shares nothing is a candidate: %v", list)
	}
	list := apart(a, "60")
	if len(list) != 1 {
		t.Fatalf("%d candidates, want 1: %v", len(list), list)
	}
	want := map[croft.HostID]croft.Resources{a.ID: {croft.VCPU: 1}, disk.ID: {croft.DiskGB: 60}}
	if diff := cmp.Diff(want, list[0].Allocations); diff != "" {
		t.Error("candidate (-want +got):", diff)
	}
	id := croft.NewInstanceID()
	if err := s.client.Claim(t.Context(), id, owner, list[0]); err != nil {
		t.Fatal(err)
	}
	if claims, err := s.client.Claims(t.Context(), disk.ID); err != nil || claims[id][croft.DiskGB] != 60 {
		t.Errorf("claims of the disk: %v, %v", claims, err)
	}
	if list := apart(b, "60"); len(list) != 0 {
		t.Errorf("what another host has claimed of the disk is there: %v", list)
	}
	if list := apart(b, "40"); len(list) != 1 {
		t.Errorf("what is left of the disk: %d candidates, want 1", len(list))
	}
	if err := s.client.Release(t.Context(), id, croft.On(a.ID, disk.ID)); err != nil {
		t.Fatal(err)
	}
	if used := s.read(t, disk.ID).Used[croft.DiskGB]; used != 0 {
		t.Errorf("used %d after the release, want 0", used)
	}
}

func (s *suite) uses(t *testing.T, p croft.Provider, want int64) {
	t.Helper()
	if used := s.read(t, p.ID).Used[croft.VCPU]; used != want {
		t.Errorf("%d of VCPU are used on %s, want %d", used, p.Name, want)
	}
}

func (s *suite) removeProvider(t *testing.T) {
	p, id := s.add(t, host("remove")), croft.NewInstanceID()
	if err := s.take(t, p, id, croft.Resources{croft.VCPU: 1}); err != nil {
		t.Fatal(err)
	}
	if err := s.client.RemoveProvider(t.Context(), p.ID); !errors.Is(err, croft.Conflict) {
		t.Errorf("of one that is claimed from: got %v, want a conflict", err)
	}
	if err := s.client.Release(t.Context(), id, croft.On()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.client.RemoveProvider(t.Context(), p.ID); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.client.Claims(t.Context(), p.ID); !errors.Is(err, croft.NotFound) {
		t.Errorf("got %v, want that it is gone", err)
	}
}

// usage claims for one project of two partitions, which share a Placement.
func (s *suite) usage(t *testing.T) {
	p, id := s.add(t, host("usage")), croft.NewInstanceID()
	here := croft.Owner{Partition: croft.NewPartitionID(), Project: "lab"}
	there := croft.Owner{Partition: croft.NewPartitionID(), Project: "lab"}
	candidate := func(cpus int64) croft.Candidate {
		return croft.Candidate{Allocations: map[croft.HostID]croft.Resources{p.ID: {croft.VCPU: cpus}}}
	}
	uses := func(want map[croft.Owner]int64) {
		t.Helper()
		for o, cpus := range want {
			got, err := s.client.Usage(t.Context(), o)
			if err != nil || got[croft.VCPU] != cpus || cpus == 0 && len(got) > 0 {
				t.Errorf("%s uses %v, %v; want VCPU:%d", o, got, err, cpus)
			}
		}
	}
	uses(map[croft.Owner]int64{here: 0, there: 0})
	for i, o := range []croft.Owner{here, here, there} {
		claimant := croft.NewInstanceID()
		if i == 0 {
			claimant = id
		}
		if err := s.client.Claim(t.Context(), claimant, o, candidate(1)); err != nil {
			t.Fatal(err)
		}
	}
	uses(map[croft.Owner]int64{here: 2, there: 1})
	if err := s.client.Reclaim(t.Context(), s.claimOf(t, id), there, candidate(2)); err != nil {
		t.Fatal(err)
	}
	uses(map[croft.Owner]int64{here: 1, there: 3})
	if err := s.client.Release(t.Context(), id, croft.On()); err != nil {
		t.Fatal(err)
	}
	uses(map[croft.Owner]int64{here: 1, there: 1})
}
