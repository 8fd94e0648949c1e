package pool_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/pool"
)

func TestOwnersHaveNoMoreTicketsThanTheyMay(t *testing.T) {
	with(t, one, func(w *world) {
		limited := pool.Opening{Owner: "alice", MostOpen: 2}
		first := w.open(limited)
		w.open(limited)
		_, err := w.Open(w.Context(), limited)
		wantKind(w.T, err, croft.NoCapacity, "alice has 2 tickets open")
		w.open(pool.Opening{Owner: "alice"})
		w.open(pool.Opening{Owner: "bob", MostOpen: 1})
		for _, id := range []pool.TicketID{first.ID, 3} {
			if err := w.Close(w.Context(), id); err != nil {
				w.Fatal(err)
			}
		}
		w.open(limited)
	})
}

func TestAKeyNamesOneTicketOfItsOwner(t *testing.T) {
	with(t, one, func(w *world) {
		mine := pool.Opening{Owner: "alice", Key: "k", MostOpen: 1}
		first := w.open(mine)
		if again := w.open(mine); again.ID != first.ID {
			w.Errorf("got %d and %d", first.ID, again.ID)
		}
		if other := w.open(pool.Opening{Owner: "bob", Key: "k"}); other.ID == first.ID {
			w.Error("bob has the ticket of alice")
		}
		if other := w.open(pool.Opening{Owner: "alice"}); other.ID == first.ID {
			w.Error("without a key it is the same ticket")
		}
	})
}

func TestResourcesAreFoundByNumberAndName(t *testing.T) {
	const replaced = 6
	with(t, one+"  name_pattern: machine\n", func(w *world) {
		for id := range pool.ResourceID(replaced) {
			if err := w.DeleteResources(w.Context(), id+1); err != nil {
				w.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		for text, want := range map[string]pool.ResourceID{"machine": replaced + 1, "1": 1, "7": 7} {
			for range 20 { // repeated, because the order of a map is random
				if r, err := w.Resource(text); err != nil || r.ID != want {
					w.Errorf("%s: got %+v, %v", text, r, err)
				}
			}
		}
		for _, text := range []string{"8", "0", "nobody", ""} {
			_, err := w.Resource(text)
			wantKind(w.T, err, croft.NotFound, "there is no resource "+text)
		}
		for _, past := range []bool{false, true} {
			var ids, want []pool.ResourceID
			all, err := w.Resources(past)
			for _, r := range all {
				ids = append(ids, r.ID)
			}
			for id := range pool.ResourceID(replaced + 1) {
				if past || id == replaced {
					want = append(want, id+1)
				}
			}
			if err != nil || !slices.Equal(ids, want) {
				w.Errorf("got %v, %v, want %v", ids, err, want)
			}
		}
	})
}

func TestTicketsAreListedUnlessTheyAreClosed(t *testing.T) {
	with(t, one, func(w *world) {
		failed, closed, open := w.open(pool.Opening{}), w.open(pool.Opening{}), w.open(pool.Opening{})
		if err := w.DeleteResources(w.Context(), failed.Resource); err != nil {
			w.Fatal(err)
		}
		if err := w.Close(w.Context(), closed.ID); err != nil {
			w.Fatal(err)
		}
		for past, want := range map[bool][]pool.TicketID{false: {failed.ID, open.ID}, true: {1, 2, 3}} {
			var ids []pool.TicketID
			all, err := w.Tickets(past)
			for _, st := range all {
				ids = append(ids, st.ID)
			}
			if err != nil || !slices.Equal(ids, want) {
				w.Errorf("got %v, %v, want %v", ids, err, want)
			}
		}
	})
}

func TestPoolsAreListedInTheOrderOfTheFile(t *testing.T) {
	const others = "z:\n  cmd_new: n\n  cmd_delete: d\n  tags: [z]\n  max: 0\nb:\n  cmd_new: n\n  cmd_delete: d\n  tags: [b]\n  max: 1\n"
	with(t, strings.ReplaceAll(one, "p:", "a:")+others, func(w *world) {
		list := func(want string) {
			w.Helper()
			var got []string
			all, err := w.Pools()
			for _, p := range all {
				got = append(got, fmt.Sprintf("%s %d/%d waiting %d", p.Name(), p.Counts.Taken, p.Counts.Up, p.Waiting))
			}
			if strings.Join(got, ", ") != want || err != nil {
				w.Errorf("got %v, %v, want %s", got, err, want)
			}
		}
		list("a 0/1 waiting 0, z 0/0 waiting 0, b 0/1 waiting 0")
		for _, tag := range []string{"a", "a", "b", "z"} {
			w.open(pool.Opening{Tags: []string{tag}})
		}
		list("a 1/1 waiting 1, z 0/0 waiting 0, b 1/1 waiting 0")
		w.write(others)
		time.Sleep(2 * time.Second)
		list("z 0/0 waiting 0, b 1/1 waiting 0, a 1/1 waiting 1") // the file may be incomplete
		time.Sleep(time.Minute)
		list("z 0/0 waiting 0, b 1/1 waiting 0, a 1/1 waiting 0")
	})
}

func TestWhoStandsByAnswersNothing(t *testing.T) {
	with(t, one, func(w *world) {
		m, stop := w.server("two")
		defer stop()
		ctx, id := w.Context(), w.open(pool.Opening{}).ID
		for what, ask := range map[string]func() error{
			"Open":            func() error { _, err := m.Open(ctx, pool.Opening{}); return err },
			"Get":             func() error { _, err := m.Get(ctx, id); return err },
			"Peek":            func() error { _, err := m.Peek(id); return err },
			"Wait":            func() error { _, err := m.Wait(ctx, id); return err },
			"Close":           func() error { return m.Close(ctx, id) },
			"Renew":           func() error { _, err := m.Renew(ctx, id); return err },
			"Tickets":         func() error { _, err := m.Tickets(true); return err },
			"Resources":       func() error { _, err := m.Resources(true); return err },
			"Resource":        func() error { _, err := m.Resource("1"); return err },
			"Pools":           func() error { _, err := m.Pools(); return err },
			"DeleteResources": func() error { return m.DeleteResources(ctx, 1) },
			"Pause":           func() error { return m.Pause(ctx, "p") },
			"Watch":           func() error { return m.Watch(ctx, func() { w.Error("it tells of changes") }) },
		} {
			err := ask()
			if standby, is := errors.AsType[*pool.StandbyError](err); !is || standby.Leader == nil ||
				standby.Leader.Name != "one" || !errors.Is(err, croft.Unavailable) || errors.Is(err, croft.NotFound) {
				w.Errorf("%s: got %v", what, err)
			}
		}
		if m.Forgotten(id) {
			w.Error("it has forgotten what it never knew")
		}
		if leader, here := m.Leader(); here || leader == nil || leader.Name != "one" {
			w.Errorf("got %+v, here: %v", leader, here)
		}
	})
}

func TestWatchersAreToldOfEachChange(t *testing.T) {
	with(t, one, func(w *world) {
		told := 0
		ended := make(chan error, 1)
		go func() { ended <- w.Watch(context.Background(), func() { told++ }) }()
		for i, change := range []func(){
			func() {},
			func() { time.Sleep(time.Minute) }, // nothing changes
			func() { w.open(pool.Opening{Tags: []string{"x"}}) },
			func() { _ = w.Pause(w.Context(), "p") },
		} {
			change()
			synctest.Wait()
			if want := max(1, i); told != want {
				w.Errorf("after change %d it was told %d times, want %d", i, told, want)
			}
		}
		w.store.Depose()
		wantKind(w.T, <-ended, croft.Unavailable, "")
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		if err := w.Watch(ctx, func() {}); !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("got %v", err)
		}
	})
}

func TestWhoLeadsIsTold(t *testing.T) {
	with(t, one, func(w *world) {
		second, stop := w.server("two")
		var told []string
		ctx, cancel := context.WithCancel(w.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			second.WatchLeader(ctx, func(s *pool.Server, here bool) {
				if s == nil {
					s = &pool.Server{Name: "nobody"}
				}
				if text := fmt.Sprint(s.Name, " ", here); len(told) == 0 || told[len(told)-1] != text {
					told = append(told, text)
				}
			})
		}()
		synctest.Wait()
		w.stop()
		w.stop = func() {}
		time.Sleep(time.Second)
		stop()
		time.Sleep(time.Second)
		cancel()
		<-ended
		if len(told) < 2 || told[0] != "one false" || !slices.Contains(told, "two true") ||
			slices.Contains(told, "one true") {
			w.Errorf("got %q", told)
		}
		if _, here := second.Leader(); here {
			w.Error("after its end it leads")
		}
	})
}

func TestOnlyWhatWasIsForgotten(t *testing.T) {
	with(t, one, func(w *world) {
		for range 300 {
			if err := w.Close(w.Context(), w.open(pool.Opening{Tags: []string{"x"}}).ID); err != nil {
				w.Fatal(err)
			}
		}
		for id, want := range map[pool.TicketID]bool{-1: false, 0: false, 1: true, 2: true, 300: false, 301: false} {
			if got := w.Forgotten(id); got != want {
				w.Errorf("ticket %d is forgotten: %v", id, got)
			}
		}
		for _, id := range []pool.TicketID{-1, 0, 301} {
			text := fmt.Sprint("there is no ticket ", id)
			_, err := w.Get(w.Context(), id)
			wantKind(w.T, err, croft.NotFound, text)
			wantKind(w.T, w.Close(w.Context(), id), croft.NotFound, text)
			_, err = w.Renew(w.Context(), id)
			wantKind(w.T, err, croft.NotFound, text)
		}
	})
}

// A use is written once a tenth of the lease has passed since the last written one.
func TestUsesAreWrittenSeldom(t *testing.T) {
	with(t, one, func(w *world) {
		begun := time.Now()
		id := w.open(pool.Opening{TTL: time.Minute}).ID
		renewed := func(want time.Duration) {
			w.Helper()
			synctest.Wait()
			if st, err := w.Peek(id); err != nil || st.Renewed.Sub(begun) != want {
				w.Errorf("at %s it was renewed at %s, want %s, %v", time.Since(begun), st.Renewed.Sub(begun), want, err)
			}
		}
		use := func(after, want time.Duration) {
			w.Helper()
			time.Sleep(after)
			if _, err := w.Get(w.Context(), id); err != nil {
				w.Error(err)
			}
			renewed(want)
		}
		use(5*time.Second, 0)
		use(time.Second, 6*time.Second)
		use(6*time.Second-1, 6*time.Second)
		use(1, 12*time.Second)
		renew := func(after, want time.Duration) {
			w.Helper()
			time.Sleep(after)
			if st, err := w.Renew(w.Context(), id); err != nil || st.Renewed.Sub(begun) != want {
				w.Errorf("got %s, want %s, %v", st.Renewed.Sub(begun), want, err)
			}
			renewed(want)
		}
		renew(time.Second-1, 12*time.Second)
		renew(1, 13*time.Second)
		_, err := w.Renew(w.Context(), w.open(pool.Opening{}).ID)
		wantKind(w.T, err, croft.Conflict, "ticket 2 has no lease")
	})
}

func TestWaitingIsAUse(t *testing.T) {
	with(t, one, func(w *world) {
		first := w.open(pool.Opening{})
		time.AfterFunc(10*time.Minute, func() { _ = w.Close(context.Background(), first.ID) })
		st, err := w.Wait(w.Context(), w.open(pool.Opening{TTL: 30 * time.Second}).ID)
		if err != nil || !st.Ready() {
			w.Errorf("got %+v, %v", st, err)
		}
	})
}

func TestModesLast(t *testing.T) {
	with(t, one, func(w *world) {
		mode := func(want pool.Mode) pool.PoolStatus {
			w.Helper()
			all, err := w.Pools()
			if err != nil || all[0].Mode != want {
				w.Errorf("got %+v, %v, want %q", all, err, want)
			}
			return all[0]
		}
		w.Ail("p", true)
		if err := w.DeleteResources(w.Context(), 1); err != nil {
			w.Fatal(err)
		}
		for range 30 {
			if time.Sleep(time.Minute); mode(pool.Active).NotBefore.After(time.Now().Add(10 * time.Second)) {
				break
			}
		}
		for want, set := range map[pool.Mode]func(context.Context, pool.Name) error{pool.Paused: w.Pause,
			pool.Drained: w.Drain} {
			if err := set(w.Context(), "p"); err != nil {
				w.Fatal(err)
			}
			if p := mode(want); !p.NotBefore.After(time.Now()) || p.Failed == 0 {
				w.Errorf("its back-off ended: %+v", p.Record)
			}
		}
		w.Ail("p", false)
		if err := w.Resume(w.Context(), "p"); err != nil {
			w.Fatal(err)
		}
		if p := mode(pool.Active); !p.NotBefore.IsZero() {
			w.Errorf("it waits: %+v", p.Record)
		}
		if time.Sleep(5 * time.Second); mode(pool.Active).Counts.Up != 1 {
			w.Error("nothing is started")
		}
	})
}
