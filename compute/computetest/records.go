package computetest

import (
	"maps"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"croft"
	"croft/hosts/audit"
)

func testInstance(s *stage) {
	s.live(s.Host)
	inst := s.request()
	got, err := s.Agent.Instance(s.ctx(), inst.ID)
	s.check(err)
	inst.Spec.UserData = nil // only orders have it
	if diff := cmp.Diff(inst, got); diff != "" {
		s.t.Errorf("record:\n%s", diff)
	}
	_, err = s.Agent.Instance(s.ctx(), croft.NewInstanceID())
	s.want(err, croft.NotFound)
}

func testHostBooks(s *stage) {
	s.live(s.Host)
	s.offer()
	ordered, scheduling := s.request(), s.record()
	s.claim(scheduling.ID)
	seen := croft.Observation{Host: s.Host, Instance: ordered.ID, State: croft.StateRunning}
	s.check(s.Agent.Observe(s.ctx(), seen))
	order, err := s.Others.Order(s.ctx(), s.Host, ordered.ID)
	s.check(err)
	ordered.Spec.UserData, order.Spec.UserData = nil, nil // evidence is read often and needs none

	b, err := s.Agent.HostEvidence(s.ctx(), s.Host, scheduling.ID, croft.NewInstanceID())
	s.check(err)
	if b.Only != s.Host || b.Claims == nil || b.Contents == nil || b.Hosts[s.Host].Name == "" {
		s.t.Errorf("got books %+v", b)
	}
	if diff := cmp.Diff([]croft.Order{order}, b.Orders); diff != "" {
		s.t.Errorf("orders:\n%s", diff)
	}
	if diff := cmp.Diff([]croft.Observation{seen}, b.Observations, cmpopts.EquateEmpty()); diff != "" {
		s.t.Errorf("observations:\n%s", diff)
	}
	if diff := cmp.Diff(ordered, b.Instances[ordered.ID]); diff != "" {
		s.t.Errorf("record:\n%s", diff)
	}
	if other := b.Instances[scheduling.ID]; len(b.Instances) != 2 || other.State != croft.StateScheduling ||
		other.Revision != scheduling.Revision {
		s.t.Errorf("got records %v, want the one that claims here too", b.Instances)
	}
}

func testDrop(s *stage) {
	s.live(s.Host)
	inst := s.request()
	s.check(s.Others.Bury(s.ctx(), inst, s.order(inst, croft.WantGone)))
	lost, err := s.Agent.Order(s.ctx(), s.Host, inst.ID)
	s.check(err)
	s.check(s.Agent.Drop(s.ctx(), audit.Difference{Kind: audit.LostOrder, Host: s.Host, Instance: inst.ID,
		Revision: lost.Revision - 1}))
	if _, err := s.Agent.Order(s.ctx(), s.Host, inst.ID); err != nil {
		s.t.Errorf("an order that had changed was dropped: %v", err)
	}
	s.check(s.Agent.Drop(s.ctx(), audit.Difference{Kind: audit.LostOrder, Host: s.Host, Instance: inst.ID,
		Revision: lost.Revision}))
	_, err = s.Agent.Order(s.ctx(), s.Host, inst.ID)
	s.want(err, croft.NotFound)

	kept := s.request()
	s.check(s.Agent.Observe(s.ctx(), croft.Observation{Host: s.Host, Instance: kept.ID, State: croft.StateRunning}))
	s.check(s.Agent.Drop(s.ctx(), audit.Difference{Kind: audit.LostObservation, Host: s.Host, Instance: kept.ID}))
	if _, err := s.Agent.Observed(s.ctx(), s.Host, kept.ID); err != nil {
		s.t.Errorf("an observation with an order was dropped: %v", err)
	}
}

func testInventory(s *stage) {
	_, err := s.Agent.Claims(s.ctx(), s.Host)
	s.want(err, croft.NotFound)
	p := s.offer()
	p.Traits = append(p.Traits, "COMPUTE_STATUS_DISABLED")
	s.check(s.Agent.EnsureProvider(s.ctx(), p))
	s.check(s.Agent.EnsureProvider(s.ctx(), p))
	id := croft.NewInstanceID()
	s.claim(id)
	got, err := s.Agent.Claims(s.ctx(), s.Host)
	s.check(err)
	want := croft.Resources{croft.VCPU: 1}
	if len(got) != 1 || !maps.Equal(got[id], want) {
		s.t.Errorf("got claims %v, want that of instance %s", got, id)
	}
}

// claims reports whether an instance has a claim on the host.
func (s *stage) claims(id croft.InstanceID) bool {
	s.t.Helper()
	all, err := s.Agent.Claims(s.ctx(), s.Host)
	s.check(err)
	_, has := all[id]
	return has
}

func testRelease(s *stage) {
	s.live(s.Host)
	s.offer()
	inst := s.request()
	s.claim(inst.ID)
	s.condemn(inst)
	for range 2 {
		s.check(s.Agent.Release(s.ctx(), inst.ID, croft.On()))
		if s.claims(inst.ID) {
			s.t.Error("it still claims")
		}
	}
}

func testReleaseLeaked(s *stage) {
	s.offer()
	id := croft.NewInstanceID()
	s.claim(id)
	for range 2 {
		s.check(s.Agent.Release(s.ctx(), id, croft.On()))
		if s.claims(id) {
			s.t.Error("it still claims")
		}
	}
}
