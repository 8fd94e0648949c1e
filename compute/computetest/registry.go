package computetest

import (
	"context"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"croft"
)

func testPutHost(s *stage) {
	hosts, err := s.Agent.Hosts(s.ctx(), s.Host)
	s.check(err)
	if len(hosts) != 0 {
		s.t.Fatalf("got %v, want no host", hosts)
	}
	h := croft.Host{
		ID: s.Host, Name: "näme", Addresses: []string{"192.0.2.1"}, API: "https://192.0.2.1:8779", Token: "secret",
		Location: "site1/row2",
		Version:  "1.2.3", VirtType: "kvm", FormerName: "old", Problems: []string{"it is hot"}, Place: "machine/dir",
		Arch: croft.Archs(), Findings: []croft.Finding{{Level: croft.FindingWarn, Check: "clock", Found: "it is slow",
			Do: "set it"}},
	}
	said := h
	said.Alive, said.Drained, said.Seen = true, true, time.Now() // fields that PutHost ignores
	s.check(s.Agent.PutHost(s.ctx(), said))
	got, err := s.Agent.Hosts(s.ctx(), s.Host)
	s.check(err)
	if diff := cmp.Diff(h, got[s.Host], cmpopts.IgnoreFields(croft.Host{}, "Token")); diff != "" {
		s.t.Errorf("what the agent reads:\n%s", diff)
	}
	seen, err := s.Others.Hosts(s.ctx(), s.Host)
	s.check(err)
	if diff := cmp.Diff(h, seen[s.Host]); diff != "" {
		s.t.Errorf("what others read:\n%s", diff)
	}
}

// agent is a running agent of the host.
type agent struct {
	known  func()
	rivals chan *croft.Agent // receives nil: this agent holds the lock
	end    func()
}

// serve starts an agent at a place.
func (s *stage) serve(place string, may bool) *agent {
	s.t.Helper()
	known := make(chan struct{})
	a := &agent{rivals: make(chan *croft.Agent, 100), known: func() { close(known) }}
	me := croft.Agent{Host: s.Host, Place: place, Name: "name", API: "http://192.0.2.1:1"}
	a.end = s.background(func(ctx context.Context) {
		_ = s.Agent.Serve(ctx, me, known, func(rival *croft.Agent) bool {
			a.rivals <- rival
			return may
		})
	})
	return a
}

// acquired returns the next rival reported to an agent; nil: it holds the lock.
func (s *stage) acquired(a *agent) *croft.Agent {
	s.t.Helper()
	select {
	case rival := <-a.rivals:
		return rival
	case <-time.After(patience):
		s.t.Fatal("the agent is never told who has the agent lock")
		return nil
	}
}

func testServe(s *stage) {
	s.check(s.Agent.PutHost(s.ctx(), croft.Host{ID: s.Host, Name: "h"}))
	a := s.serve("here", true)
	if rival := s.acquired(a); rival != nil {
		s.t.Fatalf("got rival %v, want the agent lock", rival)
	}
	hosts, err := s.Others.Hosts(s.ctx(), s.Host)
	s.check(err)
	if hosts[s.Host].Alive {
		s.t.Error("it is alive before it is known")
	}
	a.known()
	s.alive(s.Host, true)
	a.end()
	s.alive(s.Host, false)
}

func testServeBroken(s *stage) {
	s.check(s.Agent.PutHost(s.ctx(), croft.Host{ID: s.Host, Name: "h"}))
	a := s.serve("here", true)
	a.known()
	s.alive(s.Host, true)
	s.acquired(a)
	s.Break()
	s.alive(s.Host, true) // still, or again
	s.Break()
	s.alive(s.Host, true)
}

func testRival(s *stage) {
	s.check(s.Agent.PutHost(s.ctx(), croft.Host{ID: s.Host, Name: "h"}))
	first := s.serve("here", true)
	first.known()
	s.acquired(first)
	second := s.serve("there", true)
	if rival := s.acquired(second); rival == nil || rival.Place != "here" {
		s.t.Fatalf("got rival %v, want the first agent", rival)
	}
	first.end()
	for s.acquired(second) != nil { // the first one may be reported again
	}
	second.known()
	s.alive(s.Host, true)
}

func testLockRefused(s *stage) {
	s.check(s.Agent.PutHost(s.ctx(), croft.Host{ID: s.Host, Name: "h"}))
	copied := s.serve("there", false)
	copied.known()
	if rival := s.acquired(copied); rival != nil {
		s.t.Fatalf("got rival %v, want the agent lock", rival)
	}
	rightful := s.serve("here", true)
	rightful.known()
	for s.acquired(rightful) != nil {
	}
	s.alive(s.Host, true)
}

// testDeath declares a host dead whose agent is alive.
func testDeath(s *stage) {
	s.check(s.Agent.PutHost(s.ctx(), croft.Host{ID: s.Host, Name: "h"}))
	agent := s.serve("here", true)
	agent.known()
	s.acquired(agent)
	s.alive(s.Host, true)
	inst := s.request()
	before, err := s.Agent.Order(s.ctx(), s.Host, inst.ID)
	s.check(err)
	death, err := s.Others.BeginDeath(s.ctx(), s.Host)
	s.check(err)
	_, err = s.Others.DeclareDead(s.ctx(), s.Host, death, croft.ConfirmedOff)
	s.check(err)
	if rival := s.acquired(agent); rival != nil { // again, after its lock was revoked
		s.t.Errorf("got rival %v, want the agent lock", rival)
	}
	hosts, err := s.Agent.Hosts(s.ctx(), s.Host)
	s.check(err)
	if !hosts[s.Host].IsDead() {
		s.t.Errorf("its record is %+v, want it dead", hosts[s.Host])
	}
	seen := croft.Observation{Host: s.Host, Instance: inst.ID, Generation: 1, OrderCreated: before.CreateRevision,
		State: croft.StateRunning}
	s.want(s.Agent.Observe(s.ctx(), seen), croft.Conflict)
	after, err := s.Agent.Order(s.ctx(), s.Host, inst.ID)
	s.check(err)
	if before.HostDeath != 0 || after.HostDeath != death.CreateRevision {
		s.t.Errorf("orders name the death %d, and then %d, want 0 and %d", before.HostDeath, after.HostDeath,
			death.CreateRevision)
	}
	seen.HostDeath = after.HostDeath
	s.check(s.Agent.Observe(s.ctx(), seen))
}
