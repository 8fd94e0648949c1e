package pool

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

const instances = "p:\n  instance: {resources: 'VCPU:1'}\n  tags: [a]\n  max_prealloc: 0\n"

// configured applies another file to a ledger.
func configured(t *testing.T, l *Ledger, file string) {
	t.Helper()
	set, err := Parse("pools.yaml", []byte(file), func(Instance) error { return nil }, nil)
	if err != nil {
		t.Fatal(err)
	}
	l.configure(set, at)
}

func TestWhatIsLostGoesAtOnceAndSaysWhy(t *testing.T) {
	lost := func(Resource, Instance) error { return errors.New("it went off") }
	l := ledger(t, instances, []Resource{up(func(r *Resource) { r.Instance = "i" }),
		up(func(r *Resource) { r.Instance, r.CameUp = "j", at.Add(time.Second) })}, nil)
	l.lose(at, lost, at)
	if r := l.resources[1]; r.State != DeleteRequest || r.Reason != "it is lost: it went off" {
		t.Errorf("got %+v", r)
	}
	if r := l.resources[2]; r.State != Up {
		t.Errorf("what came up later: got %+v", r)
	}
}

func TestWithoutLivechecksNothingIsAmiss(t *testing.T) {
	l := ledger(t, off+"  cmd_livecheck: c\n", []Resource{up(func(r *Resource) { r.Failures = 1 })},
		[]Ticket{wants("a")})
	configured(t, l, off)
	if actions, _ := Decide(l, at); len(actions) != 1 || actions[0].Op != OpAssign {
		t.Errorf("got %v", actions)
	}
}

func TestWhatWasMadeByCommandsIsDeletedByThem(t *testing.T) {
	l := ledger(t, off, []Resource{up()}, nil)
	configured(t, l, instances)
	p, made := l.pools["p"], l.resources[1]
	if set := p.settingsOf(made); set.Commands.Delete != "d" {
		t.Errorf("got %+v", set)
	}
	if set := p.settingsOf(&Resource{Instance: "i"}); set.Instance == nil {
		t.Errorf("an instance: got %+v", set)
	}
	if written := newLedger("p",
		Snapshot{Pools: l.changes().Pools}); written.pools["p"].settingsOf(made).Commands.Delete != "d" {
		t.Error("the next server knows nothing of it")
	}
	configured(t, l, "p:\n  cmd_new: n\n  cmd_delete: other\n")
	if set := p.settingsOf(made); set.Commands.Delete != "other" {
		t.Errorf("with other commands: got %+v", set)
	}
	if set := p.settingsOf(&Resource{Instance: "i"}); set.Instance == nil {
		t.Errorf("what is an instance still: got %+v", set)
	}
}

func TestAMendedPoolTriesAgainAtOnce(t *testing.T) {
	for name, files := range map[string][2]string{
		"its commands": {off, off + "  cmd_livecheck: c\n"},
		"its instance": {instances, "p:\n  instance: {resources: 'VCPU:2'}\n"},
	} {
		l := ledger(t, files[0], nil, nil, backingOff("p"))
		l.pools["p"].LastError = "no room"
		configured(t, l, files[1])
		if p := l.pools["p"]; p.Failed != 0 || !p.NotBefore.IsZero() || p.LastError != "" {
			t.Errorf("%s: got %+v", name, p.Record)
		}
	}
}

func TestAnErrorHindersAPoolOnlyWhileItLacksResources(t *testing.T) {
	failed := Record{Settings: Settings{Max: 3, MaxPrealloc: 2}, Failed: 1, LastError: "no room"}
	mended := failed
	mended.Failed = 0
	for _, c := range []struct {
		name string
		PoolStatus
		want string
	}{
		{"it lacks one", PoolStatus{failed, Counts{Up: 1, Free: 1}, 0}, "no room"},
		{"it has all of its stock", PoolStatus{failed, Counts{Up: 2, Free: 2}, 0}, ""},
		{"it has as many as it may", PoolStatus{failed, Counts{Up: 3, Taken: 3}, 0}, ""},
		{"a ticket waits", PoolStatus{failed, Counts{Up: 3, Taken: 3}, 1}, "no room"},
		{"starts succeed again", PoolStatus{mended, Counts{}, 1}, ""},
	} {
		if got := c.Hindrance(); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// The cause of a failed start stays visible after later ones succeed.
func TestTheLastFailureStays(t *testing.T) {
	l := ledger(t, instances, []Resource{{State: Starting, Instance: "i"}, {State: Starting, Instance: "j"}}, nil)
	l.started(1, startEnd{err: errors.New("no room")}, at)
	l.started(2, startEnd{}, at.Add(time.Minute))
	p := l.pools["p"]
	if f := p.LastFailure; p.LastError != "" || f == nil || *f != (Failure{1, at, "no room"}) {
		t.Errorf("after a success: %q, %+v", p.LastError, f)
	}
}

func TestInstancesAreNeverGivenUp(t *testing.T) {
	l := ledger(t, instances, []Resource{{State: Starting, Instance: "i"}}, nil)
	l.started(1, startEnd{err: errors.New("no")}, at)
	for range 30 {
		l.resources[1].State = Deleting
		l.deleted(1, errors.New("no"), at)
	}
	if r := l.resources[1]; r.State != DeleteRequest {
		t.Errorf("got %+v", r)
	}
}

// Leases could not be renewed while no server led.
func TestLeasesBeginAnewWithAServer(t *testing.T) {
	l := ledger(t, off, []Resource{up(of(1))}, []Ticket{{Resource: 1, TTL: time.Minute, Renewed: at.Add(-time.Hour)}})
	l.takeOver(nil, at)
	if actions, next := Decide(l, at); len(actions) > 0 || next != at.Add(time.Minute) {
		t.Errorf("got %v, and then at %s", actions, next)
	}
	if b := l.changes(); len(b.Tickets) != 1 || b.Tickets[0].Renewed != at {
		t.Errorf("written: %+v", b.Tickets)
	}
}

// A server wrote that a resource belongs to a ticket, but not the ticket.
func TestHalfABatchIsCompleted(t *testing.T) {
	l := ledger(t, off, []Resource{up(of(1), func(r *Resource) { r.Sandboxed = at.Add(-time.Hour) })},
		[]Ticket{{TTL: time.Minute}})
	l.takeOver(nil, at)
	ticket := l.tickets[1]
	if !ticket.Ready() || ticket.Served != at || ticket.Expires() != at.Add(time.Minute) || len(l.waiting) > 0 {
		t.Errorf("got %+v, and %d wait", ticket, len(l.waiting))
	}
	if served := l.pools["p"].Stats.Served; served != 0 {
		t.Errorf("it is counted again: %d", served)
	}
}

func TestNoTwoHaveOneName(t *testing.T) {
	l := ledger(t, "p:\n"+both+"  tags: [a]\n  max_starting: 3\n  max_prealloc: 3\n  name_pattern: 'machine'\n", nil,
		nil)
	Decide(l, at)
	var got []string
	for id := range ResourceID(3) {
		got = append(got, l.resources[id+1].Name)
	}
	if want := "[machine machine_2 machine_3]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

func TestTicketsThatEndedAreWrittenFirst(t *testing.T) {
	b := Batch{Tickets: []Ticket{{ID: 1, State: TicketOpen}, {ID: 2, State: TicketClosed},
		{ID: 3, State: TicketFailed}}}
	ended, open := b.TicketsByEnd()
	if len(ended) != 2 || ended[0].ID != 2 || ended[1].ID != 3 || len(open) != 1 || open[0].ID != 1 {
		t.Errorf("got %+v and %+v", ended, open)
	}
}

func TestAPoolThatPassesToAnotherProjectKeepsNothing(t *testing.T) {
	const mine = off + "  project: mine\n"
	for _, c := range []struct{ name, before, after string }{
		{"to another project", mine, off + "  project: theirs\n"},
		{"from no project to one", off, mine},
		{"it is shared no more", mine + "  shared: true\n", mine},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := ledger(t, c.before, []Resource{up(), up(of(1)), {State: Starting},
				up(used(time.Second, 1, "x"))}, []Ticket{{Resource: 2, Tags: []string{"a"}}},
				func(l *Ledger) { l.pools["p"].LastError = "secret" })
			configured(t, l, c.after)
			waits := l.open(Ticket{Project: l.pools["p"].Settings.Project, Tags: []string{"a"}})
			Decide(l, at)
			for id, want := range map[ResourceID]State{1: Deleting, 2: Up, 3: Deleting, 4: Deleting} {
				if r := l.resources[id]; r.State != want {
					t.Errorf("resource %d is %s, want %s", id, r.State, want)
				}
			}
			if !waits.Waiting() {
				t.Errorf("a ticket got a resource of before: %+v", waits)
			}
			if passed := c.before != mine+"  shared: true\n"; passed && l.pools["p"].LastError != "" {
				t.Errorf("the pool tells the next project %q", l.pools["p"].LastError)
			}
			l.end(l.tickets[1], TicketClosed, "", at)
			if Decide(l, at); l.resources[2].State != Deleting {
				t.Errorf("what its ticket returned is %s", l.resources[2].State)
			}
			if next := l.start(l.pools["p"], at); l.pools["p"].former(next) {
				t.Error("a resource made now counts as one of before")
			}
		})
	}
	l := ledger(t, mine, []Resource{up()}, nil)
	configured(t, l, mine+"  max: 7\n")
	if Decide(l, at); l.resources[1].State != Up || l.pools["p"].former(l.resources[1]) {
		t.Errorf("after another change of the settings the resource is %+v", l.resources[1])
	}
}

func TestAPoolThatReturnsKeepsNothingOfTheFormerOne(t *testing.T) {
	l := ledger(t, off, []Resource{up()}, nil)
	former := l.resources[1]
	l.configure(nil, at)
	Decide(l, at)
	l.gone(former, at)
	if Decide(l, at); l.pools["p"] != nil {
		t.Fatal("the pool was not forgotten")
	}
	if configured(t, l, off); !l.pools["p"].former(former) {
		t.Error("the next pool of the name has the resources of the former one")
	}
}
