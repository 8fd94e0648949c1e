package pool_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"croft/pool"
)

// books is the stored state in the form that the checks need.
type books struct {
	pool.Snapshot
	tickets   map[pool.TicketID]*pool.Ticket
	resources map[pool.ResourceID]*pool.Resource
	had       map[pool.ResourceID][]*pool.Ticket // current and former owners, in that order
}

func (r *run) books() books {
	from, err := r.store.Snapshot()
	if err != nil {
		r.Fatal(err)
	}
	b := books{from, map[pool.TicketID]*pool.Ticket{}, map[pool.ResourceID]*pool.Resource{},
		map[pool.ResourceID][]*pool.Ticket{}}
	for i := range from.Resources {
		b.resources[from.Resources[i].ID] = &from.Resources[i]
	}
	for i := range from.Tickets {
		t := &from.Tickets[i]
		b.tickets[t.ID] = t
		if t.Resource != 0 {
			b.had[t.Resource] = append(b.had[t.Resource], t)
		}
	}
	for _, all := range b.had {
		slices.SortFunc(all, func(a, b *pool.Ticket) int { return a.Served.Compare(b.Served) })
	}
	return b
}

// check checks the invariants of the stored state and the world.
func (r *run) check() {
	if r.store.CommittedAtomically() {
		b := r.books()
		r.checkResources(b)
		r.checkOwners(b)
		r.checkTickets(b)
		r.checkTurns(b)
		r.checkLeases(b)
		r.checkPauses(b)
	}
	if all, orphans := r.world.Running(); orphans > 0 && r.leader() != nil {
		r.Errorf("of %d processes %d are of servers that are gone", all, orphans)
	}
	for _, wrong := range r.world.Broken() {
		r.Error(wrong)
	}
}

func (r *run) checkResources(b books) {
	live, starting := map[pool.Name]int{}, map[pool.Name]int{}
	numbers, counters := map[string]bool{}, map[int]bool{}
	for _, res := range b.Resources {
		if !res.Live() {
			// it may never be known whether the machine exists
			if res.Aborted && res.Deletes > 1 && res.Error != "" {
				r.world.Abandon(res.Name)
			}
			continue
		}
		if !res.GivenUp() {
			live[res.Pool]++
		}
		if res.State == pool.Starting {
			starting[res.Pool]++
		}
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
		if t := b.tickets[res.Ticket]; res.Ticket != 0 && (t == nil || t.Resource != res.ID) {
			r.Errorf("resource %d says that ticket %d has it, which is %+v", res.ID, res.Ticket, t)
		}
	}
	for name, n := range live {
		if n > maxOf[name] || starting[name] > startingOf[name] {
			r.Errorf("pool %s has %d resources, of which %d start: more than %d, or %d", name, n, starting[name],
				maxOf[name], startingOf[name])
		}
	}
}

// checkOwners checks that each resource had one owner at a time, all from the same owner's sandbox, and that it
// fit each ticket.
func (r *run) checkOwners(b books) {
	for id, all := range b.had {
		res := b.resources[id]
		for i, t := range all {
			if t.Ready() && (res.Ticket != t.ID || res.State != pool.Up && res.State != pool.DeleteRequest) {
				r.Errorf("ticket %d has resource %d, which is %s and of ticket %d", t.ID, id, res.State, res.Ticket)
			}
			for _, tag := range t.Tags {
				if !slices.ContainsFunc(res.Tags, func(t pool.Tag) bool { return t.Name == tag }) {
					r.Errorf("ticket %d asked for %v and has %v", t.ID, t.Tags, res.Tags)
				}
			}
			if i == 0 {
				continue
			}
			if before := all[i-1]; before.State == pool.TicketOpen || before.Ended.After(t.Served) {
				r.Errorf("tickets %d and %d have resource %d at once", before.ID, t.ID, id)
			} else if before.Owner != t.Owner || before.Sandbox != t.Sandbox {
				r.Errorf("resource %d went from %s's sandbox %s to %s's sandbox %s", id, before.Owner, before.Sandbox,
					t.Owner, t.Sandbox)
			}
		}
	}
}

func (r *run) checkTickets(b books) {
	for i, t := range b.Tickets {
		if t.ID != pool.TicketID(i+1) && !r.lost {
			r.Fatalf("the ticket after %d is %d", i, t.ID)
		}
		if t.Ready() {
			r.world.Held(t.Resource, b.resources[t.Resource].Name)
		}
	}
	for id, h := range r.open {
		t := b.tickets[id]
		switch {
		case t == nil:
			r.Errorf("ticket %d is lost", id)
		case h.has != 0 && t.Resource != h.has:
			r.Errorf("ticket %d had resource %d, and has %d", id, h.has, t.Resource)
		case h.has == 0 && t.Ready():
			h.has = t.Resource
			res := b.resources[t.Resource]
			r.world.Use(res.Name, t.Owner+"/"+t.Sandbox, res.Pool == "warm")
		}
	}
}

// checkTurns checks that tickets of a project with the same tags that may not use used resources are served in order.
func (r *run) checkTurns(b books) {
	waits := map[string]*pool.Ticket{}
	for i := range b.Tickets {
		t := &b.Tickets[i]
		if !t.Private {
			continue
		}
		tags := string(t.Project) + " " + strings.Join(t.Tags, " ")
		if first := waits[tags]; first != nil && t.Resource != 0 {
			r.Errorf("ticket %d waits for %s still, and %d was served", first.ID, tags, t.ID)
		} else if first == nil && t.Waiting() {
			waits[tags] = t
		}
	}
}

// checkLeases checks that leases end when their time is over, and not before.
func (r *run) checkLeases(b books) {
	quiet := time.Since(r.calm) > 3*time.Second && r.mutes == 0
	for _, t := range b.Tickets {
		over := t.Renewed.Add(t.TTL)
		if t.State == pool.TicketOpen && t.TTL > 0 && quiet && time.Since(over) > 2*time.Second {
			r.Errorf("the lease of ticket %d ended at %s", t.ID, over)
		}
		if !strings.HasPrefix(t.Reason, "nobody used the ticket") {
			continue
		}
		if t.Ended.Before(over) {
			r.Errorf("ticket %d was closed at %s, and its lease lasts until %s", t.ID, t.Ended, over)
		}
		if h := r.open[t.ID]; h != nil && h.used.After(r.calm) && h.used.Before(t.Ended) &&
			t.Ended.Before(h.used.Add(t.TTL-t.TTL/10)) {
			r.Errorf("ticket %d was used at %s, and closed at %s with a lease of %s", t.ID, h.used, t.Ended, t.TTL)
		}
	}
}

// checkPauses checks that paused pools start and hand out nothing, and that a drained one keeps no unassigned
// resource.
func (r *run) checkPauses(b books) {
	quiet := time.Since(r.calm) > 3*time.Second && r.mutes == 0
	for _, res := range b.Resources {
		if since, is := r.drained[res.Pool]; is && quiet && time.Since(since) > 3*time.Second && res.Idle() {
			r.Errorf("pool %s is drained, and keeps resource %d", res.Pool, res.ID)
		}
		if since, is := r.paused[res.Pool]; is && res.Created.After(since) {
			r.Errorf("pool %s is paused, and started resource %d", res.Pool, res.ID)
		}
	}
	for id, all := range b.had {
		last := all[len(all)-1]
		if since, is := r.paused[b.resources[id].Pool]; is && last.Served.After(since) {
			r.Errorf("pool %s is paused, and served ticket %d", b.resources[id].Pool, last.ID)
		}
	}
}

// finish ends all faults, and checks that every ticket is then served, and that nothing is left once all tickets are
// closed and every pool is removed, whatever failed before.
func (r *run) finish() {
	r.stir()
	r.store.Fail(nil, 0)
	r.mutes = 0
	clear(r.world.Trouble)
	clear(r.paused)
	clear(r.drained)
	for name := range maxOf {
		r.world.Ail(string(name), false)
	}
	r.write(fileOf(r.random, true))
	time.Sleep(time.Minute)
	synctest.Wait()
	l := r.leader()
	if l == nil {
		r.Fatal("nobody acts")
	}
	for name := range maxOf {
		if err := l.Resume(r.Context(), name); err != nil {
			r.Fatal(err)
		}
	}
	r.servesAll(l)
	r.servesElsewhere(l)
	r.closeAll(l)
	r.checkStats()
	for name := range maxOf { // a file without pools removes only drained pools
		if err := l.Drain(r.Context(), name); err != nil {
			r.Fatal(err)
		}
	}
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

// servesAll checks that every ticket is served once earlier tickets are closed.
func (r *run) servesAll(l *server) {
	for range 5 {
		r.take(r.Context(), l)
	}
	var left []pool.TicketStatus
	for range 100 {
		time.Sleep(20 * time.Second)
		synctest.Wait()
		r.check()
		all, err := l.Tickets(false)
		if err != nil {
			r.Fatal(err)
		}
		left = slices.DeleteFunc(all, func(t pool.TicketStatus) bool { return t.State != pool.TicketOpen })
		for _, t := range left {
			if t.Ready() {
				if err := l.Close(r.Context(), t.ID); err != nil {
					r.Fatal(err)
				}
			}
		}
		if len(left) == 0 {
			return
		}
	}
	r.Fatalf("nobody serves %+v", left)
}

// servesElsewhere checks that another pool replaces one that starts nothing.
func (r *run) servesElsewhere(l *server) {
	r.world.Ail("demand", true)
	for range 2 {
		st, err := l.Open(r.Context(), pool.Opening{Tags: []string{"d"}})
		if err != nil {
			r.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(r.Context(), 20*time.Minute)
		if st, err = l.Wait(ctx, st.ID); err != nil || !st.Ready() {
			r.Errorf("ticket %d gets nothing: %v", st.ID, err)
		}
		cancel()
	}
}

// closeAll closes all tickets, even those whose owners never learned their numbers.
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

// checkStats compares the statistics of a pool that was always in the file with a recount. Events of a batch that was
// written in part may be counted twice.
func (r *run) checkStats() {
	b := r.books()
	for _, p := range b.Pools {
		if p.Settings.Name == "comes" || r.lost {
			continue
		}
		var served, up, failed int64
		for _, res := range b.Resources {
			if res.Pool != p.Settings.Name {
				continue
			}
			served += int64(len(b.had[res.ID]))
			if !res.CameUp.IsZero() {
				up++
			}
			if res.Reason == "starting it failed" {
				failed++
			}
		}
		if s := p.Stats; s.Served != served || s.Starts-s.Failures != up || s.Failures != failed {
			r.Errorf("pool %s: got %+v, want %d served, %d up and %d failed", p.Settings.Name, s, served, up, failed)
		}
		if s := p.Stats; s.SuccessRate < 0 || s.SuccessRate > 1 || s.StartTime > 4*time.Second {
			r.Errorf("pool %s: got %+v", p.Settings.Name, s)
		}
	}
}

func (r *run) nothingLeft() {
	b := r.books()
	for _, res := range b.Resources {
		if res.Live() {
			r.Errorf("resource %d is %s: %s %s", res.ID, res.State, res.Reason, res.Error)
		}
	}
	if len(b.Pools) > 0 {
		r.Errorf("pools are left: %+v", b.Pools)
	}
	if left := r.world.Machines(); len(left) > 0 {
		r.Errorf("machines are left: %v", left)
	}
}
