package pool

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"croft"
)

// inWords returns a short form of a batch.
func inWords(b Batch) string {
	var all []string
	if b.Head != nil {
		all = append(all, "head")
	}
	for _, p := range b.Pools {
		all = append(all, "pool "+string(p.Settings.Name))
	}
	for _, r := range b.Resources {
		all = append(all, fmt.Sprint("resource ", r.ID, " ", r.State))
	}
	for _, t := range b.Tickets {
		all = append(all, fmt.Sprint("ticket ", t.ID, " ", t.State))
	}
	for _, name := range b.GonePools {
		all = append(all, "gone pool "+string(name))
	}
	return strings.Join(all, ", ")
}

// act applies an action to pool p, resource 1 and ticket 1.
func act(op Op) func(*Ledger) {
	return func(l *Ledger) { l.apply(Action{Op: op, Pool: "p", Resource: 1, Ticket: 1, Reason: "why"}, at) }
}

// Every step writes all that it changes, and nothing else.
func TestEachStepWritesWhatItChanges(t *testing.T) {
	errNo := errors.New("no")
	lost := func(Resource, Instance) error { return errNo }
	open := []Ticket{wants("a")}
	taken := []Ticket{{Resource: 1, TTL: time.Minute, Renewed: at.Add(-time.Second)}}
	in := func(s State) []Resource { return []Resource{{State: s}} }
	instance := func(s State) []Resource { return []Resource{{State: s, Instance: "i", CameUp: at.Add(-time.Hour)}} }
	for _, c := range []struct {
		name      string
		resources []Resource
		tickets   []Ticket
		step      func(*Ledger)
		want      string
	}{
		{"a ticket is opened", nil, nil, func(l *Ledger) { l.open(wants("a")) }, "head, ticket 1 OPEN"},
		{"it is closed", nil, open, func(l *Ledger) { l.end(l.tickets[1], TicketClosed, "", at) }, "ticket 1 CLOSED"},
		{"a failed one is closed", nil, []Ticket{{State: TicketFailed}},
			func(l *Ledger) { l.end(l.tickets[1], TicketClosed, "", at) }, "ticket 1 CLOSED"},
		{"a closed one is closed again", nil, []Ticket{{State: TicketClosed}},
			func(l *Ledger) { l.end(l.tickets[1], TicketClosed, "", at) }, ""},
		{"it is renewed", nil, taken, func(l *Ledger) { l.renew(1, at) }, "ticket 1 OPEN"},
		{"one without a lease is renewed", nil, open, func(l *Ledger) { l.renew(1, at) }, ""},
		{"an unknown one is renewed", nil, nil, func(l *Ledger) { l.renew(1, at) }, ""},
		{"it expires", nil, taken, act(OpExpire), "ticket 1 CLOSED"},
		{"it fails", nil, taken, act(OpFail), "ticket 1 FAILED"},
		{"it is served", []Resource{up()}, open, act(OpAssign), "pool p, resource 1 UP, ticket 1 OPEN"},
		{"a resource is taken back", []Resource{up(of(1))}, taken, act(OpTakeBack), "resource 1 UP"},
		{"it is cleaned", []Resource{up()}, nil, act(OpRelease), "resource 1 RELEASING"},
		{"it is condemned", []Resource{up()}, nil, act(OpCondemn), "resource 1 DELETE_REQUEST"},
		{"it is deleted", in(DeleteRequest), nil, act(OpDelete), "resource 1 DELETING"},
		{"its start is aborted", in(DeleteRequest), nil, act(OpAbort), ""},
		{"it is checked", []Resource{up()}, nil, act(OpCheck), ""},
		{"one is started", nil, nil, act(OpStart), "head, pool p, resource 1 STARTING"},
		{"orphans are searched for", nil, nil, act(OpList), "pool p"},
		{"a pool is forgotten", nil, nil, act(OpForget), "gone pool p"},

		{"a start ended", in(Starting), nil, func(l *Ledger) { l.started(1, startEnd{}, at) }, "pool p, resource 1 UP"},
		{"a start failed", in(Starting), nil, func(l *Ledger) { l.started(1, startEnd{err: errNo}, at) },
			"pool p, resource 1 DELETE_REQUEST"},
		{"a start ended that was condemned", in(DeleteRequest), nil,
			func(l *Ledger) { l.started(1, startEnd{}, at) }, "resource 1 DELETE_REQUEST"},
		{"a livecheck ended", []Resource{up()}, nil, func(l *Ledger) { l.checked(1, nil, at) }, "resource 1 UP"},
		{"a livecheck of what is being cleaned ended", in(Releasing), nil,
			func(l *Ledger) { l.checked(1, errNo, at) }, "resource 1 RELEASING"},
		{"a livecheck failed", []Resource{up()}, nil, func(l *Ledger) { l.checked(1, errNo, at) }, "resource 1 UP"},
		{"a livecheck found it lost", []Resource{up()}, nil, func(l *Ledger) { l.checked(1, ErrLost, at) },
			"resource 1 DELETE_REQUEST"},
		{"what is being cleaned is lost", in(Releasing), nil, func(l *Ledger) { l.checked(1, ErrLost, at) },
			"resource 1 RELEASING"},
		{"a livecheck of what is being deleted ended", in(Deleting), nil,
			func(l *Ledger) { l.checked(1, ErrLost, at) }, ""},
		{"a livecheck of what is forgotten ended", nil, nil, func(l *Ledger) { l.checked(1, nil, at) }, ""},
		{"a cleaning ended", in(Releasing), nil, func(l *Ledger) { l.released(1, nil) }, "resource 1 UP"},
		{"a cleaning failed", in(Releasing), nil, func(l *Ledger) { l.released(1, errNo) },
			"resource 1 DELETE_REQUEST"},
		{"a cleaning of what is condemned ended", in(DeleteRequest), nil, func(l *Ledger) { l.released(1, nil) }, ""},
		{"a cleaning of what is forgotten ended", nil, nil, func(l *Ledger) { l.released(1, errNo) }, ""},
		{"a deletion ended", in(Deleting), nil, func(l *Ledger) { l.deleted(1, nil, at) }, "resource 1 ENDED"},
		{"a deletion failed", in(Deleting), nil, func(l *Ledger) { l.deleted(1, errNo, at) },
			"resource 1 DELETE_REQUEST"},
		{"a deletion of what ended already ended", in(Ended), nil, func(l *Ledger) { l.deleted(1, errNo, at) }, ""},
		{"a deletion of what is forgotten ended", nil, nil, func(l *Ledger) { l.deleted(1, nil, at) }, ""},
		{"an instance is lost", instance(Up), nil, func(l *Ledger) { l.lose(at, lost, at) },
			"resource 1 DELETE_REQUEST"},
		{"none is", instance(Up), nil,
			func(l *Ledger) { l.lose(at, func(Resource, Instance) error { return nil }, at) }, ""},
		{"one that is being cleaned is", instance(Releasing), nil, func(l *Ledger) { l.lose(at, lost, at) }, ""},
		{"what is no instance is", []Resource{up()}, nil, func(l *Ledger) { l.lose(at, lost, at) }, ""},

		{"a server takes over a start", in(Starting), nil, func(l *Ledger) { l.takeOver(nil, at) },
			"resource 1 DELETE_REQUEST"},
		{"it takes over the start of an instance", instance(Starting), nil,
			func(l *Ledger) { l.takeOver(nil, at) }, ""},
		{"it takes over the deletion of an instance", instance(Deleting), nil,
			func(l *Ledger) { l.takeOver(nil, at) }, "resource 1 DELETE_REQUEST"},
		{"it takes over what had been condemned", in(DeleteRequest), nil,
			func(l *Ledger) { l.takeOver(map[ResourceID][]byte{1: []byte("x")}, at) }, "resource 1 DELETE_REQUEST"},
		{"it takes over what had been condemned later", []Resource{{State: DeleteRequest, Data: []byte("y")}}, nil,
			func(l *Ledger) { l.takeOver(map[ResourceID][]byte{1: []byte("x")}, at) }, ""},
		{"it takes over half an assignment", []Resource{up(of(1))}, open, func(l *Ledger) { l.takeOver(nil, at) },
			"resource 1 UP, ticket 1 OPEN"},
		{"it takes over what an ended ticket had", []Resource{up(of(1))}, []Ticket{{State: TicketClosed}},
			func(l *Ledger) { l.takeOver(nil, at) }, ""},
		{"it takes over a lease", nil, taken, func(l *Ledger) { l.takeOver(nil, at) }, "ticket 1 OPEN"},

		{"the file is as it was", []Resource{up(failed(1))}, nil, func(l *Ledger) { configured(t, l, withChecks) }, ""},
		{"it has another setting", []Resource{up(), up(failed(1))}, nil,
			func(l *Ledger) { configured(t, l, withChecks+"  ttl: 60\n") }, "pool p"},
		{"it has no livecheck any more", []Resource{up(), up(failed(1))}, nil,
			func(l *Ledger) { configured(t, l, off) }, "pool p, resource 2 UP"},
		{"it has one more pool", nil, nil, func(l *Ledger) { configured(t, l, withChecks+"q:\n"+both) }, "pool q"},
		{"it has one more before", nil, nil, func(l *Ledger) { configured(t, l, "q:\n"+both+withChecks) },
			"pool p, pool q"},
		{"it has no pool any more", nil, nil, func(l *Ledger) { l.configure(nil, at) }, "pool p"},
		{"nor has it then", nil, nil, func(l *Ledger) {
			l.configure(nil, at)
			l.changes()
			l.configure(nil, at)
		}, ""},
		{"then it has the pool again", nil, nil, func(l *Ledger) {
			l.configure(nil, at)
			l.changes()
			configured(t, l, withChecks)
		}, "pool p"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := ledger(t, withChecks, c.resources, c.tickets)
			c.step(l)
			b := l.changes()
			if got := inWords(b); got != c.want || b.Empty() != (got == "") {
				t.Errorf("got %q, want %q", got, c.want)
			}
			for _, p := range b.Pools {
				if p.Removed != (c.name == "it has no pool any more") {
					t.Errorf("pool %s is removed: %v", p.Settings.Name, p.Removed)
				}
			}
			if again := l.changes(); !again.Empty() {
				t.Errorf("it is written twice: %q", inWords(again))
			}
		})
	}
}

// withChecks is a pool with livechecks.
const withChecks = off + "  cmd_livecheck: c\n"

func TestAnEmptyBatchHasNothing(t *testing.T) {
	if b := (Batch{}); !b.Empty() {
		t.Error("an empty batch is to be written")
	}
	for i, b := range []Batch{{Head: &Head{}}, {Pools: []Record{{}}}, {Resources: []Resource{{}}},
		{Tickets: []Ticket{{}}}, {GonePools: []Name{""}}, {GoneResources: []ResourceID{1}},
		{GoneTickets: []TicketID{1}}} {
		if b.Empty() {
			t.Errorf("batch %d is not written", i)
		}
	}
}

// An assignment sets the ticket's fields from its resource, and the resource's fields that later tickets need.
func TestAnAssignmentLinksBoth(t *testing.T) {
	for _, c := range []struct {
		name     string
		file     string
		resource Resource
		ticket   Ticket
		box      box
		private  bool
		since    time.Time
		ttl      time.Duration
	}{
		{"a fresh one", off, up(), Ticket{Owner: "alice", Sandbox: "s", Private: true}, box{"alice", "s"}, true, at, 0},
		{"a used one", off, up(used(time.Second, 1, "s"), ownedBy("alice")), Ticket{Owner: "alice", Sandbox: "s",
			Private: true}, box{"alice", "s"}, false, at.Add(-30 * time.Minute), 0},
		{"one with a lease", off, up(), Ticket{Sandbox: "s", TTL: time.Hour}, box{"", "s"}, false, at, time.Hour},
		{"one of a pool with leases", off + "  ttl: 60\n", up(), Ticket{Sandbox: "s"}, box{"", "s"}, false, at,
			time.Minute},
		{"one with a lease of a pool with leases", off + "  ttl: 60\n", up(), Ticket{Sandbox: "s", TTL: time.Hour},
			box{"", "s"}, false, at, time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := ledger(t, c.file, []Resource{c.resource}, []Ticket{c.ticket})
			act(OpAssign)(l)
			r, ticket := l.resources[1], l.tickets[1]
			if r.Ticket != 1 || r.box() != c.box || r.Private != c.private || !r.Sandboxed.Equal(c.since) {
				t.Errorf("the resource: got %+v", r)
			}
			if !ticket.Ready() || ticket.Resource != 1 || ticket.Served != at || ticket.TTL != c.ttl {
				t.Errorf("the ticket: got %+v", ticket)
			}
			if leased := l.leased[1] != nil; leased != (c.ttl > 0) || leased && ticket.Renewed != at {
				t.Errorf("leased: %v, %+v", leased, ticket)
			}
			if len(l.waiting) > 0 || l.pools["p"].Stats.Served != 1 {
				t.Errorf("%d wait, and %d are served", len(l.waiting), l.pools["p"].Stats.Served)
			}
			if actions, _ := Decide(l, at); len(actions) > 0 {
				t.Errorf("it does not last: %v", actions)
			}
			act(OpExpire)(l)
			if len(l.leased)+len(l.openOf) > 0 || ticket.Expires() != (time.Time{}) {
				t.Errorf("after its end: %v leased, %v open, %+v", l.leased, l.openOf, ticket)
			}
			act(OpTakeBack)(l)
			if r.Ticket != 0 || r.Released != at || r.Releases != c.resource.Releases+1 {
				t.Errorf("after its return: %+v", r)
			}
		})
	}
}

// The result of a start determines the next state of the resource and its pool.
func TestWhatAStartLeaves(t *testing.T) {
	no, late := errors.New("no"), croft.Errorf(croft.Unavailable, "too late")
	for _, c := range []struct {
		name     string
		state    State
		instance croft.InstanceID
		err      error
		want     State
		aborted  bool
		failed   int
	}{
		{"it came up", Starting, "", nil, Up, false, 0},
		{"it failed by itself", Starting, "", no, DeleteRequest, true, 3},
		{"it was killed at its limit", Starting, "", late, DeleteRequest, false, 3},
		{"an instance came up", Starting, "i", nil, Up, false, 0},
		{"an instance failed", Starting, "i", no, DeleteRequest, false, 3},
		{"it was condemned, and came up", DeleteRequest, "", nil, DeleteRequest, false, 2},
		{"it was condemned, and failed", DeleteRequest, "", no, DeleteRequest, false, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := ledger(t, off, []Resource{{State: c.state, Instance: c.instance}}, nil)
			l.jobs[1], l.pools["p"].Failed = false, 2
			l.started(1, startEnd{data: []byte("made"), facts: []byte("{}"), took: time.Second, err: c.err}, at)
			r, p := l.resources[1], l.pools["p"]
			if r.State != c.want || r.Aborted != c.aborted || string(r.Data) != "made" || string(r.Facts) != "{}" ||
				p.Failed != c.failed || len(l.jobs) > 0 {
				t.Errorf("got %+v, %d failed, jobs %v", r, p.Failed, l.jobs)
			}
			if (r.CameUp == at) != (c.want == Up) || (len(r.Tags) > 0) != (c.want == Up) ||
				(r.Error != "") != (c.state == Starting && c.err != nil) {
				t.Errorf("got %+v", r)
			}
			if counted := c.state == Starting; counted != (p.Stats.Starts == 1) ||
				(p.Stats.Failures == 1) != (counted && c.err != nil) {
				t.Errorf("the pool counts %+v", p.Stats)
			}
		})
	}
}

func TestFailuresOfLivechecksAreInARow(t *testing.T) {
	l := ledger(t, off, []Resource{up()}, nil)
	r := l.resources[1]
	for i, c := range []struct {
		err  error
		want int
		says string
	}{{errors.New("a"), 1, "a"}, {errors.New("b"), 2, "b"}, {nil, 0, ""}, {errors.New("c"), 1, "c"}} {
		now := at.Add(time.Duration(i) * time.Minute)
		l.busy[1] = true
		if l.checked(1, c.err, now); r.Failures != c.want || r.Error != c.says || r.Checked != now || len(l.busy) > 0 {
			t.Errorf("after %v: %+v, and busy are %v", c.err, r, l.busy)
		}
	}
	l.busy[9] = true
	if l.checked(9, nil, at); len(l.busy) > 0 {
		t.Error("what is forgotten is busy")
	}
}

// Only other commands end the back-off of a failing pool, and only a change of kind keeps former settings.
func TestOtherSettingsMendNothing(t *testing.T) {
	l := ledger(t, off, nil, nil, backingOff("p"))
	configured(t, l, off+"  max: 3\n")
	if p := l.pools["p"]; p.Failed != 3 || p.NotBefore.IsZero() || p.Former != nil {
		t.Errorf("got %+v", p.Record)
	}
	configured(t, l, off+"  cmd_list: l\n")
	if p := l.pools["p"]; p.Failed != 0 || p.Former != nil {
		t.Errorf("other commands: got %+v", p.Record)
	}
	l = newLedger("p", Snapshot{})
	configured(t, l, instances+"q:\n"+both)
	if l.pools["p"].Former != nil || l.pools["q"].Former != nil {
		t.Error("a new pool has former settings")
	}
	if q := l.pools["q"]; q.settingsOf(&Resource{Instance: "i"}) != &q.Settings {
		t.Error("an instance that no former settings made has none of the pool's")
	}
	if l.pools["p"].Created != at || l.pools["q"].Position != 1 || !slices.Equal(l.order, []Name{"p", "q"}) {
		t.Errorf("got %+v, in the order %v", l.pools["q"].Record, l.order)
	}
}

func TestOrphansAreFoundAgain(t *testing.T) {
	l := ledger(t, off+"q:\n"+both, []Resource{up()}, nil)
	find := func(pool Name, output string, want ...string) {
		t.Helper()
		l.listing[pool] = true
		if got := l.listed(pool, []byte(output), nil, at); !slices.Equal(got, want) || l.listing[pool] {
			t.Errorf("got %q, want %q; listing: %v", got, want, l.listing)
		}
	}
	find("p", "x y name1", "x", "y")
	find("q", "x", "x")
	find("p", "x y z", "z")
	l.orphanGone("p", "x")
	find("p", "x y z", "x")
	for _, name := range []string{"x", "y", "z"} {
		l.orphanGone("p", name)
	}
	if _, has := l.orphans["p"]; has || len(l.orphans["q"]) != 1 {
		t.Errorf("got %v", l.orphans)
	}
	find("none", "x")
	l.configure(nil, at)
	find("p", "x")
}

// History is kept in the order in which records ended, whatever their numbers.
func TestHistoryIsInOrderOfItsEnd(t *testing.T) {
	ended := []time.Duration{3, 1, 2, 1}
	var from Snapshot
	for i, after := range ended {
		from.Resources = append(from.Resources, Resource{ID: ResourceID(i + 1), State: Ended, EndedAt: at.Add(after)})
		from.Tickets = append(from.Tickets,
			Ticket{ID: TicketID(i + 1), State: TicketClosed, TTL: 1, Ended: at.Add(after)})
	}
	l := newLedger("p", from)
	if !slices.Equal(l.past, []TicketID{2, 4, 3, 1}) || !slices.Equal(l.ended, []ResourceID{2, 4, 3, 1}) {
		t.Errorf("got %v and %v", l.past, l.ended)
	}
	if len(l.leased)+len(l.openOf)+len(l.waiting)+len(l.pools) > 0 {
		t.Errorf("what ended is leased: %v, open: %v, waits: %v", l.leased, l.openOf, l.waiting)
	}
}

func TestInstancesHaveRandomIDsThatAreRecordedBeforeUse(t *testing.T) {
	seen := map[croft.InstanceID]bool{}
	for range 3 {
		l := ledger(t, instances+"q:\n"+both+"  named_counters: [c, d]\n", nil, nil)
		r := l.start(l.pools["p"], at)
		if r.Instance == "" || seen[r.Instance] || r.Instance == DerivedInstance("p", r.ID) || r.Counters != nil ||
			l.pools["p"].LastStart != at {
			t.Errorf("got %+v", r)
		}
		seen[r.Instance] = true
		if b := l.changes(); len(b.Resources) != 1 || b.Resources[0].Instance != r.Instance {
			t.Errorf("what is written before the start lacks the ID: %+v", b)
		}
		if r := l.start(l.pools["q"], at); r.Instance != "" || !maps.Equal(r.Counters, map[string]int{"c": 0, "d": 0}) {
			t.Errorf("got %+v", r)
		}
	}
}

func TestAStartUnderADerivedIDIsNotContinued(t *testing.T) {
	l := ledger(t, instances, []Resource{
		{State: Starting, Instance: DerivedInstance("p", 1)}, {State: Starting, Instance: croft.NewInstanceID()},
		{State: Up, Instance: DerivedInstance("p", 3)}}, nil)
	l.takeOver(nil, at)
	for id, want := range map[ResourceID]State{1: DeleteRequest, 2: Starting, 3: Up} {
		if got := l.resources[id].State; got != want {
			t.Errorf("resource %d: got %s, want %s", id, got, want)
		}
	}
}

func TestAStillServerFailsWhatIsCondemned(t *testing.T) {
	l := ledger(t, off, []Resource{up(of(1)), {State: DeleteRequest, Ticket: 2}, {State: DeleteRequest, Ticket: 3}},
		[]Ticket{{Resource: 1}, {Resource: 2}, {Resource: 3, State: TicketClosed}})
	var got []string
	for _, a := range failCondemned(l, at) {
		got = append(got, told(a))
	}
	if want := []string{"fail 2 for 2"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// No more livechecks than allowed run at once, over all pools.
func TestLivechecksAreBounded(t *testing.T) {
	var all []Resource
	for range maxChecks + 5 {
		all = append(all, up(unchecked))
	}
	for busy, want := range map[int]int{0: maxChecks, 4: maxChecks - 4, maxChecks: 0, maxChecks + 3: 0} {
		l := ledger(t, withChecks, all, nil, func(l *Ledger) {
			for i := range busy {
				l.busy[ResourceID(i+1000)] = true
			}
		})
		if actions, _ := Decide(l, at); len(actions) != want {
			t.Errorf("beside %d: got %d, want %d", busy, len(actions), want)
		}
	}
}
