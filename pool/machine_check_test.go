package pool_test

import (
	"fmt"
	"testing/synctest"
	"time"

	"croft/pool"
)

// check looks at what is stored and at the world: what must always hold.
func (r *run) check() {
	from, err := r.store.Snapshot()
	if err != nil {
		r.Fatal(err)
	}
	tickets := map[pool.TicketID]*pool.Ticket{}
	for i := range from.Tickets {
		tickets[from.Tickets[i].ID] = &from.Tickets[i]
	}
	r.checkResources(from, tickets)
	r.checkTickets(from, tickets)
	for _, wrong := range r.world.Broken() {
		r.Error(wrong)
	}
}

func (r *run) checkResources(from pool.Snapshot, tickets map[pool.TicketID]*pool.Ticket) {
	live, numbers, counters := map[pool.Name]int{}, map[string]bool{}, map[int]bool{}
	for _, res := range from.Resources {
		if !res.Live() {
			continue
		}
		live[res.Pool]++
		if at := fmt.Sprint(res.Pool, res.InPool); numbers[at] {
			r.Errorf("two resources of pool %s have the number %d", res.Pool, res.InPool)
		} else {
			numbers[at] = true
		}
		if n, has := res.Counters["c"]; has && counters[n] {
			r.Errorf("two resources have the counter's value %d", n)
		} else if has {
			counters[n] = true
		}
		if t := tickets[res.Ticket]; res.Ticket != 0 && (t == nil || t.Resource != res.ID) {
			r.Errorf("resource %d says that ticket %d has it, which is %+v", res.ID, res.Ticket, t)
		}
	}
	for name, n := range live {
		if n > maxOf[name] {
			r.Errorf("pool %s has %d resources, more than %d", name, n, maxOf[name])
		}
	}
}

func (r *run) checkTickets(from pool.Snapshot, tickets map[pool.TicketID]*pool.Ticket) {
	owner := map[pool.ResourceID]pool.TicketID{}
	for i, t := range from.Tickets {
		if t.ID != pool.TicketID(i+1) {
			r.Fatalf("the ticket after %d is %d", i, t.ID)
		}
		if t.Ready() {
			if other := owner[t.Resource]; other != 0 {
				r.Errorf("tickets %d and %d have resource %d", other, t.ID, t.Resource)
			}
			owner[t.Resource] = t.ID
		}
	}
	for id, h := range r.open {
		t := tickets[id]
		switch {
		case t == nil:
			r.Errorf("ticket %d is lost", id)
		case h.has != 0 && t.Resource != h.has:
			r.Errorf("ticket %d had resource %d, and has %d", id, h.has, t.Resource)
		case h.has == 0 && t.Ready():
			h.has = t.Resource
			r.world.Use(from.Resources[t.Resource-1].Name, h.sandbox)
		}
	}
}

// finish has everything given back and every pool removed: after a while nothing is
// left, whatever failed meanwhile.
func (r *run) finish() {
	r.store.Fail(nil, false)
	clear(r.world.Trouble)
	r.write(fileOf(r.random, true))
	time.Sleep(time.Minute)
	synctest.Wait()
	l := r.leader()
	if l == nil {
		r.Fatal("nobody acts")
	}
	r.closeAll(l)
	r.checkStats()
	r.write("")
	time.Sleep(time.Hour)
	synctest.Wait()
	r.check()
	r.nothingLeft()
	for range 2 {
		r.end(0, false)
	}
	if all, orphans := r.world.Running(); all != 0 {
		r.Errorf("%d processes run, %d of servers that are gone", all, orphans)
	}
}

// closeAll closes all tickets, also those whose owners never learned their numbers.
func (r *run) closeAll(l *server) {
	all, err := l.Tickets(false)
	if err != nil {
		r.Fatal(err)
	}
	for _, t := range all {
		if err := l.Close(r.Context(), t.ID); err != nil {
			r.Fatal(err)
		}
	}
	clear(r.open)
}

// checkStats compares what is counted with what can be counted again: the pool was
// always in the file.
func (r *run) checkStats() {
	from, err := r.store.Snapshot()
	if err != nil {
		r.Fatal(err)
	}
	for _, p := range from.Pools {
		if p.Settings.Name == "comes" {
			continue
		}
		served, up := int64(0), int64(0)
		for _, t := range from.Tickets {
			if t.Resource != 0 && from.Resources[t.Resource-1].Pool == p.Settings.Name {
				served++
			}
		}
		for _, res := range from.Resources {
			if res.Pool == p.Settings.Name && !res.CameUp.IsZero() {
				up++
			}
		}
		if s := p.Stats; s.Served != served || s.Starts-s.Failures != up || s.SuccessRate < 0 || s.SuccessRate > 1 || s.StartTime > 4*time.Second {
			r.Errorf("pool %s: got %+v, want %d served and %d up", p.Settings.Name, s, served, up)
		}
	}
}

func (r *run) nothingLeft() {
	from, err := r.store.Snapshot()
	if err != nil {
		r.Fatal(err)
	}
	for _, res := range from.Resources {
		if res.Live() {
			r.Errorf("resource %d is %s: %s %s", res.ID, res.State, res.Reason, res.Error)
		}
	}
	if len(from.Pools) > 0 {
		r.Errorf("pools are left: %+v", from.Pools)
	}
	if left := r.world.Machines(); len(left) > 0 {
		r.Errorf("machines are left: %v", left)
	}
}
