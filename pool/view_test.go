package pool

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
)

// What readers see follows every batch, and wakes who waits for it.
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
			c.add(&r, 1)
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
