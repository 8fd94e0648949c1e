package pooltest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"croft"
	"croft/internal/testing/patient"
	"croft/pool"
)

// TestStore runs the contract tests of a store. open returns another connection to the same store, which is empty at
// first; lose makes the leader lose its lead.
func TestStore(t *testing.T, fresh func(t *testing.T) (open func() pool.Store, lose func())) {
	t.Run("what is committed is loaded", func(t *testing.T) {
		open, _ := fresh(t)
		led(t, open(), "one", func(ctx context.Context, term pool.Term) {
			want := sample()
			commit(t, term, pool.Batch{Head: &want.Head, Pools: want.Pools, Resources: want.Resources,
				Tickets: want.Tickets})
			if diff := cmp.Diff(want, load(t, term)); diff != "" {
				t.Error(diff)
			}
		})
		led(t, open(), "two", func(ctx context.Context, term pool.Term) {
			if diff := cmp.Diff(sample(), load(t, term)); diff != "" {
				t.Errorf("in the next term: %s", diff)
			}
		})
	})
	t.Run("what is gone is loaded no more", func(t *testing.T) {
		open, _ := fresh(t)
		led(t, open(), "one", func(ctx context.Context, term pool.Term) {
			all := sample()
			commit(t, term, pool.Batch{Head: &all.Head, Pools: all.Pools, Resources: all.Resources,
				Tickets: all.Tickets})
			commit(t, term, pool.Batch{GonePools: []pool.Name{"p"}, GoneResources: []pool.ResourceID{2},
				GoneTickets: []pool.TicketID{1, 3}})
			want := pool.Snapshot{Head: all.Head, Resources: all.Resources[:1], Tickets: all.Tickets[1:2]}
			if diff := cmp.Diff(want, load(t, term)); diff != "" {
				t.Error(diff)
			}
		})
	})
	t.Run("a batch may be committed again", func(t *testing.T) {
		open, _ := fresh(t)
		led(t, open(), "one", func(ctx context.Context, term pool.Term) {
			b := pool.Batch{Tickets: sample().Tickets, GoneResources: []pool.ResourceID{7}}
			commit(t, term, b)
			commit(t, term, b)
		})
	})
	t.Run("a batch may have more than a transaction holds", func(t *testing.T) {
		open, _ := fresh(t)
		led(t, open(), "one", func(ctx context.Context, term pool.Term) {
			var b pool.Batch
			for i := range 9000 {
				b.Tickets = append(b.Tickets, pool.Ticket{ID: pool.TicketID(i + 1), State: pool.TicketOpen,
					Tags: []string{"a"}})
			}
			commit(t, term, b)
			if got := load(t, term); len(got.Tickets) != len(b.Tickets) || got.Tickets[8999].ID != 9000 {
				t.Errorf("got %d tickets", len(got.Tickets))
			}
		})
	})
	t.Run("what is loaded is of one moment", func(t *testing.T) { testMoment(t, fresh) })
	t.Run("one leads at a time, and who lost the lead writes no more", func(t *testing.T) { testLead(t, fresh) })
	t.Run("who leads is known to all", func(t *testing.T) { testLeader(t, fresh) })
}

// testMoment loads more records than fit into one response of a store, while all of them are repeatedly changed at
// once.
func testMoment(t *testing.T, fresh func(t *testing.T) (func() pool.Store, func())) {
	open, _ := fresh(t)
	led(t, open(), "one", func(ctx context.Context, term pool.Term) {
		write := func(sandbox string) {
			var b pool.Batch
			for i := range 2100 { // more than one page
				b.Tickets = append(b.Tickets, pool.Ticket{ID: pool.TicketID(i + 1), State: pool.TicketOpen,
					Sandbox: sandbox})
			}
			commit(t, term, b)
		}
		write("0")
		loading := make(chan struct{})
		var writing sync.WaitGroup
		defer writing.Wait()
		writing.Go(func() {
			for n := 1; ; n++ {
				select {
				case <-loading:
					return
				default:
					write(fmt.Sprint(n))
				}
			}
		})
		defer close(loading)
		for range 5 {
			got := load(t, term)
			for _, ticket := range got.Tickets {
				if ticket.Sandbox != got.Tickets[0].Sandbox {
					t.Errorf("ticket %d is of write %s, and the first of %s", ticket.ID, ticket.Sandbox,
						got.Tickets[0].Sandbox)
					return
				}
			}
		}
	})
}

func testLead(t *testing.T, fresh func(t *testing.T) (func() pool.Store, func())) {
	open, lose := fresh(t)
	first, second := open(), open()
	began, lost := make(chan struct{}), make(chan struct{})
	var old pool.Term
	go func() {
		_ = first.Lead(t.Context(), pool.Server{Name: "one"}, func(ctx context.Context, term pool.Term) error {
			old = term
			close(began)
			<-ctx.Done()
			close(lost)
			return ctx.Err()
		})
	}()
	<-began
	next := make(chan error, 1)
	go func() {
		next <- second.Lead(t.Context(), pool.Server{Name: "two"}, func(ctx context.Context, term pool.Term) error {
			select {
			case <-lost:
			case <-time.After(patient.Longest):
				t.Error("the first does not learn that it lost the lead")
			}
			if err := old.Commit(context.WithoutCancel(ctx), pool.Batch{Head: &pool.Head{Ticket: 9}}); !errors.Is(err,
				croft.Conflict) {
				t.Errorf("the first writes still: got %v, want a Conflict", err)
			}
			return term.Commit(ctx, pool.Batch{Head: &pool.Head{Ticket: 1}})
		})
	}()
	lose()
	if err := <-next; err != nil {
		t.Error(err)
	}
}

func testLeader(t *testing.T, fresh func(t *testing.T) (func() pool.Store, func())) {
	open, _ := fresh(t)
	ctx, cancel := context.WithTimeout(t.Context(), patient.Longest)
	defer cancel()
	seen, ended := make(chan string, 100), make(chan error, 1)
	watcher := open()
	go func() {
		ended <- watcher.WatchLeader(ctx, func(s *pool.Server) {
			if s == nil {
				seen <- "nobody"
			} else {
				seen <- s.Name + " at " + s.Address
			}
		})
	}()
	await := func(want string) {
		t.Helper()
		for {
			select {
			case got := <-seen:
				if got == want {
					return
				}
			case <-ctx.Done():
				t.Fatalf("never saw %s", want)
			}
		}
	}
	await("nobody")
	if err := open().Lead(ctx, pool.Server{Name: "one", Address: "here"}, func(context.Context, pool.Term) error {
		await("one at here")
		return nil
	}); err != nil {
		t.Error(err)
	}
	await("nobody")
	cancel()
	<-ended
}

func led(t *testing.T, s pool.Store, name string, do func(context.Context, pool.Term)) {
	t.Helper()
	if err := s.Lead(t.Context(), pool.Server{Name: name}, func(ctx context.Context,
		term pool.Term) error {
		do(ctx, term)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func commit(t *testing.T, term pool.Term, b pool.Batch) {
	t.Helper()
	if err := term.Commit(t.Context(), b); err != nil {
		t.Fatal(err)
	}
}

func load(t *testing.T, term pool.Term) pool.Snapshot {
	t.Helper()
	from, err := term.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return from
}

// sample returns a snapshot with a value in most fields, so that a field that is not stored is noticed.
func sample() pool.Snapshot {
	now := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	return pool.Snapshot{
		Head: pool.Head{Ticket: 3, Resource: 2},
		Pools: []pool.Record{{
			Settings: pool.Settings{Name: "p", Commands: pool.Commands{New: "n", Delete: "d"}, Max: 3,
				Tags: []pool.Tag{{Name: "a", Priority: -1}}, ReuseTime: time.Hour},
			Mode: pool.Paused, Created: now, Stats: pool.Stats{Attempted: now, SuccessRate: 0.5,
				StartTime: time.Second},
		}},
		Resources: []pool.Resource{
			{ID: 1, Name: "one", Pool: "p", State: pool.Up, Tags: []pool.Tag{{Name: "a"}},
				Counters: map[string]int{"c": 0}, Data: []byte("\xff\x00\n"), Ticket: 2, Sandbox: "s", Created: now,
				CameUp: now},
			{ID: 2, Name: "two", Pool: "p", State: pool.Ended, InPool: 1, Data: []byte{}, Facts: []byte(`{"a":1}`),
				Created: now, EndedAt: now, Reason: "why"},
		},
		Tickets: []pool.Ticket{
			{ID: 1, State: pool.TicketClosed, Tags: []string{"a", "b"}, Sandbox: "s", Opened: now, Ended: now},
			{ID: 2, State: pool.TicketOpen, Resource: 1, TTL: time.Minute, Opened: now, Served: now, Renewed: now},
			{ID: 3, State: pool.TicketFailed, Reason: "it broke", Opened: now},
		},
	}
}
