package compute

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"croft"
)

// A guest that is off right after its start cannot stay up. It is started again later.
func TestAGuestIsNotStartedAgainAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := job{order: run()}.logbook(t)
		a := l.agent()
		_ = one(t, a, l)
		crash := func() { l.domain.Power, l.domain.Crashed = PowerOff, true }
		crash()
		time.Sleep(startGrace - time.Second)
		if got := one(t, a, l); len(got) != 1 || !strings.HasPrefix(got[0], "observe failed since the guest went off") {
			t.Errorf("done: %q", got)
		}
		time.Sleep(time.Second)
		if got := one(t, a, l); !slices.Equal(got, []string{"start", isRunning}) {
			t.Errorf("later: %q", got)
		}
		// A stop in between makes the next start count as a new one.
		l.order.Generation, l.order.Rebooted = 5, 5
		crash()
		if got := one(t, a, l); !slices.Equal(got, []string{"stop", "mark 5", "start", isRunning}) {
			t.Errorf("a reboot: %q", got)
		}
	})
}

// The reason why a guest ended is kept when the hypervisor and the agent restart.
func TestHowAGuestEndedIsRemembered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const told = "observe stopped by the guest powered itself off"
		l := job{order: run(), domain: poweredOff()}.logbook(t)
		a := l.agent()
		if got := one(t, a, l); !slices.Equal(got, []string{told}) {
			t.Errorf("done: %q", got)
		}
		l.domain.Halted = false
		if got := one(t, a, l); len(got) > 0 {
			t.Errorf("the next pass does %q", got)
		}
		a = l.agent() // another agent reads what the first one wrote
		if got := one(t, a, l); !slices.Equal(got, []string{told}) {
			t.Errorf("the next agent does %q", got)
		}
		l.order.Generation = 5
		if got := one(t, a, l); !slices.Equal(got, []string{"mark 5", "start", isRunning}) {
			t.Errorf("the next order: %q", got)
		}
	})
}

// A step that takes long is observed while it runs.
func TestWhatTakesLongIsToldMeanwhile(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		order  croft.Order
		domain *Domain
		want   []string
	}{
		{run(), nil, []string{"observe fetching", "fetch", "disk 9", "observe defining", "define", "start",
			"observe booting at 192.0.2.7", isRunning}},
		{bury(), on(), []string{"remove", "observe removing", "release [h]", "forget"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := job{order: c.order, domain: c.domain}.logbook(t)
			l.slow = passingTime * 3 / 2
			a := l.agent()
			if got := one(t, a, l); !slices.Equal(sorted(got), sorted(c.want)) {
				t.Errorf("done: %q, want %q", got, c.want)
			}
		})
	}
}

func sorted(words []string) []string { return slices.Sorted(slices.Values(words)) }

// An observation is written when it changes, and again if the write failed, unless the order is gone.
func TestAnObservationIsWrittenUntilItIsStored(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fails error
		soon  bool
	}{{nil, false}, {errPlanned, true}, {croft.Errorf(croft.Conflict, "the order is gone"), false}} {
		synctest.Test(t, func(t *testing.T) {
			l := job{order: halt(), domain: off()}.logbook(t)
			a := l.agent()
			l.fail = func(call string) error {
				if call == "observe stopped" {
					return c.fails
				}
				return nil
			}
			_ = one(t, a, l)
			if a.instances.awaited[guest] != c.soon {
				t.Errorf("%v: looked at again: %v", c.fails, a.instances.awaited)
			}
			l.fail = nil
			if got := one(t, a, l); (len(got) > 0) != (c.fails != nil) || a.instances.awaited[guest] {
				t.Errorf("%v: the next pass does %q", c.fails, got)
			}
		})
	}
}

// An interrupted pass writes nothing, because the next one has newer information.
func TestAnInterruptedPassSaysNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := job{order: run()}.logbook(t)
		a := l.agent()
		ctx, cancel := context.WithCancel(t.Context())
		l.fail = func(call string) error {
			if call == "define" {
				cancel()
				return context.Canceled
			}
			return nil
		}
		a.pass(ctx, guest)
		l.want(t, "fetch", "disk 9", "define")
		if a.instances.awaited[guest] || len(a.builds) > 0 {
			t.Errorf("looked at again: %v, builds: %d", a.instances.awaited, len(a.builds))
		}
	})
}

// Builds beyond the limit are pending until another build has ended, or they are interrupted.
func TestABuildWaitsForItsPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := job{order: run()}.logbook(t)
		a := l.agent()
		a.builds <- struct{}{}
		ctx, cancel := context.WithCancel(t.Context())
		go a.pass(ctx, guest)
		time.Sleep(time.Second)
		synctest.Wait()
		l.want(t, "observe pending")
		cancel()
		synctest.Wait()
		l.want(t)
		go a.pass(t.Context(), guest)
		time.Sleep(time.Second)
		synctest.Wait()
		l.want(t)
		<-a.builds
		synctest.Wait()
		l.want(t, "fetch", "disk 9", "define", "start", isRunning)
		if len(a.builds) > 0 {
			t.Error("it keeps its place")
		}
	})
}

// The steps of a boot are observed with their states, but only those of the newest boot.
func TestTheStepsOfABootAreTold(t *testing.T) {
	t.Parallel()
	claimed, image, defined, running, address := croft.EventClaimed, croft.EventImage, croft.EventDefined,
		croft.EventRunning, croft.EventAddress
	synctest.Test(t, func(t *testing.T) {
		l := job{order: run()}.logbook(t)
		a := l.agent()
		expect := func(what string, want ...croft.EventName) {
			t.Helper()
			_ = one(t, a, l)
			var got []croft.EventName
			for _, e := range l.seen.Events {
				got = append(got, e.Name)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
		expect("a build", claimed, image, defined, running, address)
		l.order.Generation, l.order.Rebooted = 5, 5
		expect("a reboot", running, address)
		l.order.Generation, l.order.Rebuilt = 6, 6
		expect("a rebuild", image, defined, running, address)
		l.order.Generation = 7
		expect("another order", image, defined, running, address)
	})
}

// A booting guest is checked again until it has an address.
func TestAGuestThatBootsIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := job{order: run(), domain: &Domain{Power: PowerOn, Ordered: Ordered{Generation: 4}, Started: 4}}.logbook(t)
		l.domain.Reserved = append(l.domain.Reserved, reserved)
		a := l.agent()
		if got := one(t, a, l); !slices.Equal(got, []string{"observe booting at 192.0.2.7"}) ||
			!a.instances.awaited[guest] {
			t.Errorf("done: %q, looked at again: %v", got, a.instances.awaited)
		}
		l.domain.Addresses = l.domain.Reserved
		if got := one(t, a, l); !slices.Equal(got, []string{isRunning}) || a.instances.awaited[guest] {
			t.Errorf("done: %q, looked at again: %v", got, a.instances.awaited)
		}
	})
}
