package pool

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"
)

// The view contains every batch after it is written, and wakes waiting readers.
func TestTheViewFollowsEveryBatch(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	v := newView(Snapshot{Head: Head{Ticket: 7}})
	if v.head.Ticket != 7 {
		t.Errorf("got %+v", v.head)
	}
	states := []State{Starting, Up, Releasing, DeleteRequest, Deleting, Ended}
	all := map[ResourceID]Resource{}
	for i := range 500 {
		r := Resource{ID: ResourceID(random.IntN(20)), Pool: Name(fmt.Sprint(random.IntN(3))),
			State: states[random.IntN(len(states))], Ticket: TicketID(random.IntN(2))}
		if random.IntN(2) == 0 {
			r.Released = at
		}
		if old, has := all[r.ID]; has {
			r.Pool = old.Pool
		}
		all[r.ID] = r
		b := Batch{Resources: []Resource{r}}
		if r.State == Ended && random.IntN(2) == 0 {
			b.GoneResources = []ResourceID{r.ID}
			delete(all, r.ID)
		}
		changed := v.changed
		v.apply(b)
		select {
		case <-changed:
		default:
			t.Fatal("nobody is told")
		}
		want := map[Name]Counts{}
		for _, r := range all {
			c := want[r.Pool]
			c.add(&Settings{}, &r, 1)
			want[r.Pool] = c
		}
		for name, c := range v.counts {
			if *c != want[name] {
				t.Fatalf("step %d: pool %s counts %+v, want %+v", i, name, *c, want[name])
			}
		}
		if !maps.EqualFunc(all, v.resources, func(a, b Resource) bool { return a.State == b.State }) {
			t.Fatalf("step %d: got %v, want %v", i, v.resources, all)
		}
	}
	v.apply(Batch{GonePools: []Name{"0"}})
	if _, has := v.counts["0"]; has {
		t.Error("a pool that is gone is counted")
	}
}

func TestReadersAreWokenByWhatTheyWaitFor(t *testing.T) {
	v := newView(Snapshot{Tickets: []Ticket{{ID: 1}, {ID: 2}, {ID: 3}}, Pools: []Record{{Settings: defaults("p")}}})
	woken := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	wait := func(id TicketID) <-chan struct{} {
		t.Helper()
		ticket, c := v.ticket(id)
		if ticket == nil || ticket.ID != id || c == nil {
			t.Fatalf("there is no ticket %d", id)
		}
		return c
	}
	one, two, three := wait(1), wait(2), wait(3)
	if one != wait(1) {
		t.Error("two readers wait for different things")
	}
	v.apply(Batch{Tickets: []Ticket{{ID: 1, State: TicketClosed}}, GonePools: []Name{"p"}})
	if !woken(one) || woken(two) || woken(three) || len(v.pools) > 0 {
		t.Error("a change wakes its reader alone")
	}
	if one = wait(1); woken(one) {
		t.Error("after a change one waits for the next")
	}
	v.apply(Batch{GoneTickets: []TicketID{2}})
	if ticket, _ := v.ticket(2); !woken(two) || ticket != nil {
		t.Errorf("what is gone: got %+v", ticket)
	}
	changed := v.changed
	v.close()
	if ticket, c := v.ticket(1); !woken(one) || !woken(three) || !woken(changed) || ticket != nil || c != nil ||
		len(v.waiters) > 0 {
		t.Errorf("after its end there are %+v and %d who wait", ticket, len(v.waiters))
	}
}

func TestWhyATicketWaits(t *testing.T) {
	const pool = "p:\n" + both + "  tags: [a, x86_64]\n"
	paused := func(l *Ledger) { l.pools["p"].Mode = Paused }
	failing := func(l *Ledger) {
		backingOff("p")(l)
		l.pools["p"].LastError = "no room"
	}
	for _, c := range []struct {
		name, file string
		resources  []Resource
		change     func(*Ledger)
		tags       []string
		want       string
		never      bool
	}{
		{"it will start one", pool, nil, nil, []string{"a"}, "pool p is about to start one", false},
		{"without tags too", pool, nil, nil, nil, "pool p is about to start one", false},
		{"it starts some", pool + "  max: 2\n", []Resource{{State: Starting}, {State: Starting}}, nil, []string{"a"},
			"pool p is starting 2", false},
		{"it is full", pool + "  max: 4\n", []Resource{up(of(1)), {State: Releasing}, {State: Deleting},
			{State: DeleteRequest}}, nil, []string{"a"},
			"pool p has as many as it may, 4, of which 1 are taken and 3 are being cleaned or deleted", false},
		{"it is not full yet", pool + "  max: 2\n", []Resource{up(of(1))}, nil, []string{"a"},
			"pool p is about to start one", false},
		{"it is paused", pool, []Resource{{State: Starting}}, paused, []string{"a"}, "pool p is paused", false},
		{"it fails", pool + "  max: 1\n", []Resource{{State: Deleting}}, failing, []string{"a"},
			"pool p fails to start anything (no room); it tries again at " +
				at.Add(time.Minute).Local().Format(time.TimeOnly), false},
		{"the cloud is full", pool, nil, func(l *Ledger) {
			failing(l)
			l.pools["p"].Full = true
		}, []string{"a"}, "pool p has no room for another one (no room); it tries again at " +
			at.Add(time.Minute).Local().Format(time.TimeOnly), false},
		{"what is idle cannot be had", pool + "  max: 3\n", []Resource{up(used(time.Second, 1, "x"),
			tagged(Tag{Name: "a"}, Tag{Name: "x86_64"})), up(failed(1)), up()}, nil, []string{"a"},
			"pool p has as many as it may, 3, of which 0 are taken and 0 are being cleaned or deleted, 1 are kept for the " +
				"sandbox that used them, 1 are failing their livecheck, 1 are made with former settings", false},
		{"it starts none for the tags", onD, []Resource{up(of(1))}, nil, []string{"a"},
			"pool p starts nothing for these tags, and 1 of its resources are taken and 0 are being cleaned", false},
		{"two pools can serve it, in the order of the file", "z:\n" + both + pool, nil, nil, nil,
			"pool z is about to start one; pool p is about to start one", false},
		{"its max is 0", pool + "  max: 0\n", nil, nil, []string{"a"}, neverStarts, true},
		{"its max_starting is 0", pool + "  max_starting: 0\n", nil, nil, []string{"a"}, neverStarts, true},
		{"its max_prealloc is 0", pool + "  max_prealloc: 0\n", nil, nil, []string{"a"}, neverStarts, true},
		{"and it has one that is being deleted", pool + "  max: 0\n", []Resource{{State: Deleting}}, nil,
			[]string{"a"}, neverStarts, true},
		{"but it has one that is up", pool + "  max: 1\n  max_prealloc: 0\n", []Resource{up(of(1))}, nil,
			[]string{"a"},
			"pool p has as many as it may, 1, of which 1 are taken and 0 are being cleaned or deleted", false},
		{"or starts one", pool + "  max: 0\n", []Resource{{State: Starting}}, nil, nil, "pool p is starting 1", false},
		{"or cleans one", pool + "  max: 0\n", []Resource{{State: Releasing}}, nil, nil,
			"pool p has as many as it may, 0, of which 0 are taken and 1 are being cleaned or deleted", false},
		{"it starts on demand", onD, nil, nil, []string{"a", "d"}, "pool p is about to start one", false},
		{"it starts for another tag", onD, nil, nil, []string{"a"}, neverStarts, true},
		{"no pool has the tag", pool, nil, nil, []string{"a", "x86_46"},
			`no pool has the tag x86_46; did you mean "x86_64"?`, true},
		{"no pool has all", pool + "q:\n" + both + "  tags: [q]\n", nil, nil, []string{"a", "q"},
			"no pool has all of the tags a, q", true},
		{"several never start anything", two, nil, nil, nil, "pool p, q has the tags and never starts anything: " +
			"its max, max_starting or max_prealloc is 0", true},
		{"the pool is in the file no more", pool, []Resource{up(of(1))}, func(l *Ledger) { l.configure(nil, at) },
			[]string{"a"}, "no pool has the tag a", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.change == nil {
				c.change = func(*Ledger) {}
			}
			l := ledger(t, c.file, c.resources, nil, c.change)
			var from Snapshot
			for _, p := range l.pools {
				from.Pools = append(from.Pools, p.Record)
			}
			for _, r := range l.resources {
				from.Resources = append(from.Resources, *r)
			}
			v := newView(from)
			if st := v.status(Ticket{State: TicketOpen, Tags: c.tags}); st.Waits != c.want || st.Never != c.never {
				t.Errorf("got %q, %v\nwant %q", st.Waits, st.Never, c.want)
			}
			if st := v.status(Ticket{State: TicketClosed, Tags: c.tags}); st.Waits != "" || st.Never || st.Has != nil {
				t.Errorf("an ended one: got %+v", st)
			}
		})
	}
}

const neverStarts = "pool p has the tags and never starts anything: its max, max_starting or max_prealloc is 0"

func TestATicketIsShownWithWhatItHasOrHad(t *testing.T) {
	v := newView(Snapshot{Resources: []Resource{{ID: 1, State: Up}, {ID: 2, State: Ended}}})
	for id, want := range map[ResourceID]bool{0: false, 1: true, 2: true, 3: false} {
		st := v.status(Ticket{State: TicketFailed, Resource: id})
		if (st.Has != nil) != want || want && st.Has.ID != id {
			t.Errorf("resource %d: got %+v", id, st.Has)
		}
	}
}
