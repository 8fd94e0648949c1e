package tenants_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"croft"
	"croft/etcdstore/etcdtest"
	"croft/pool"
	"croft/tenant"
)

// Rounds of a manager of pools charge tickets and pools while instances of the same projects are created and removed,
// answers are lost, and projects are created and removed: counters equal records at every revision.
func TestTicketsAndPoolsAreCountedWithTheirRounds(t *testing.T) {
	t.Parallel()
	server := etcdtest.Server(t)
	s, other := etcdtest.Open(t, server), etcdtest.Open(t, server)
	newProject(t, s, "org", "", tenant.Limits{"VCPU": 1000})
	newProject(t, s, "dev", "org", nil)
	projects := []croft.Project{"org", "dev", "free", "late", ""}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() {
		for n := range 20 {
			inst := etcdtest.Must(other.Instances.Create(t.Context(), asked("dev", fmt.Sprintf("vm-%d", n), 1)))(t)
			if n%2 == 0 {
				if err := other.Instances.Discard(t.Context(), inst); err != nil {
					t.Error(err)
				}
			}
			if n == 10 { // it may have tickets by then, and then cannot be put below another project
				_, _ = other.Projects.Create(t.Context(), tenant.Tenant{Name: "late", Parent: "org"})
			}
		}
	})
	want := map[croft.Project]int64{}
	err := s.Pools.Lead(t.Context(), pool.Server{Name: "one"}, func(ctx context.Context, term pool.Term) error {
		if _, err := term.Load(ctx); err != nil {
			return err
		}
		var open []pool.Ticket
		head := pool.Head{}
		for range 60 {
			b := pool.Batch{Head: &head}
			for i := range open {
				if random.IntN(3) == 0 {
					open[i].State = pool.TicketClosed
					b.Tickets = append(b.Tickets, open[i])
				}
			}
			var left []pool.Ticket
			for _, one := range open {
				if one.State == pool.TicketOpen {
					left = append(left, one)
				}
			}
			open = left
			for range random.IntN(6) {
				head.Ticket++
				one := pool.Ticket{ID: head.Ticket, State: pool.TicketOpen,
					Project: projects[random.IntN(len(projects))]}
				open, b.Tickets = append(open, one), append(b.Tickets, one)
			}
			name := pool.Name(fmt.Sprint("p", random.IntN(3)))
			if random.IntN(2) == 0 {
				b.GonePools = append(b.GonePools, name)
			} else {
				b.Pools = append(b.Pools, pool.Record{Settings: pool.Settings{Name: name,
					Project: projects[random.IntN(len(projects))]}})
			}
			for { // until an answer arrives
				patience := time.Duration(random.IntN(8000)) * time.Microsecond
				if random.IntN(3) == 0 {
					patience = time.Minute
				}
				short, cancel := context.WithTimeout(ctx, patience)
				err := term.Commit(short, b)
				cancel()
				if err == nil {
					break
				}
				if short.Err() == nil {
					return err
				}
			}
		}
		for _, one := range open {
			want[one.Project]++
		}
		return nil
	})
	work.Wait()
	if err != nil {
		t.Fatal(err)
	}
	countsHold(t, s)
	for _, name := range []croft.Project{"dev", "free", "late"} {
		if got := used(t, s, name)[tenant.CountTickets]; got != want[name] {
			t.Errorf("project %s has %d tickets counted, want %d", name, got, want[name])
		}
	}
	etcdtest.WantKind(t, s.Projects.Remove(t.Context(), "dev"), croft.Conflict) // it has at least instances
}

// The next leader continues with the charges of the previous one.
func TestTheNextLeaderGivesBackWhatTheFirstCharged(t *testing.T) {
	t.Parallel()
	server := etcdtest.Server(t)
	s := etcdtest.Open(t, server)
	lab := newProject(t, s, "lab", "", tenant.Limits{tenant.CountTickets: 1})
	lead := func(b pool.Batch) {
		t.Helper()
		err := s.Pools.Lead(t.Context(), pool.Server{Name: "one"}, func(ctx context.Context, term pool.Term) error {
			return term.Commit(ctx, b)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	lead(pool.Batch{Tickets: []pool.Ticket{{ID: 1, State: pool.TicketOpen, Project: "lab"}},
		Pools: []pool.Record{{Settings: pool.Settings{Name: "p", Project: "lab"}}}})
	if diff := cmp.Diff(tenant.Amounts{tenant.CountTickets: 1, tenant.CountPools: 1}, used(t, s, "lab")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	etcdtest.WantKind(t, s.Projects.Remove(t.Context(), "lab"), croft.Conflict)
	chain, _, err := s.Projects.Limits(t.Context(), "lab")
	wantChain := []tenant.Account{{Project: "lab", ID: lab.ID, Limits: tenant.Limits{tenant.CountTickets: 1}}}
	if diff := cmp.Diff(wantChain, chain); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	lead(pool.Batch{Tickets: []pool.Ticket{{ID: 1, State: pool.TicketFailed, Project: "lab"}},
		GonePools: []pool.Name{"p"}})
	if left := used(t, s, "lab"); len(left) > 0 {
		t.Errorf("%s is left", left)
	}
	countsHold(t, s)
	if err := s.Projects.Remove(t.Context(), "lab"); err != nil {
		t.Error(err)
	}
}
