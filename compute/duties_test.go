package compute

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/hosts/audit"
)

// alone returns a host without instances, and its agent.
func alone(t *testing.T) (*logbook, *Agent) {
	t.Helper()
	l := &logbook{t: t, dir: t.TempDir(), claims: map[croft.InstanceID]croft.Resources{}}
	a := l.agent()
	a.Provider = croft.Provider{ID: here, Name: "one", Traits: []croft.Trait{"T"},
		Inventories: map[croft.ResourceClass]croft.Inventory{croft.VCPU: {Total: 4, Reserved: 1, AllocationRatio: 1}}}
	a.setProblem(problemName, "")
	return l, a
}

// failing returns a function that fails these calls.
func failing(err error, calls ...string) func(string) error {
	return func(call string) error {
		if slices.Contains(calls, call) {
			return err
		}
		return nil
	}
}

func (l *logbook) want(t *testing.T, steps ...string) {
	t.Helper()
	if !slices.Equal(l.steps, steps) {
		t.Errorf("done: %q, want %q", l.steps, steps)
	}
	l.steps, l.calls = nil, nil
}

func TestASweepMendsOnlyWhatItFindsTwiceOnItsOwnHost(t *testing.T) {
	t.Parallel()
	const other = croft.InstanceID("0d0ff6a5-9d0e-4b62-a1a1-5b6c0e1c2d3f")
	for _, c := range []struct {
		name  string
		with  func(*logbook)
		reads string // the instances whose records it reads
		steps []string
	}{
		{"nothing is wrong", func(*logbook) {}, "[]", nil},
		{"a claim without an instance", func(l *logbook) { l.claims[guest] = croft.Resources{croft.VCPU: 1} },
			"[" + string(guest) + "]", []string{"release [h]"}},
		{"a claim without an instance whose guest is there", func(l *logbook) {
			l.claims[guest] = croft.Resources{croft.VCPU: 1}
			l.others = []Domain{{ID: guest, Partition: home}}
		}, "[" + string(guest) + " " + string(guest) + "]",
			[]string{"put one formerly  [" + string(guest) + ": a guest without a record]"}},
		{"an order without an instance", func(l *logbook) {
			l.told.Orders = []croft.Order{{Host: here, Instance: guest, Want: croft.WantRunning}}
		}, "[]", []string{"drop lost order"}},
		{"an order without an instance on another host", func(l *logbook) {
			l.told.Orders = []croft.Order{{Host: "other", Instance: guest, Want: croft.WantRunning}}
		}, "[]", nil},
		{"two guests without an owner", func(l *logbook) {
			l.others = []Domain{{ID: guest, Partition: home}, {ID: other, Partition: home}}
		}, "[" + string(other) + " " + string(guest) + "]", []string{"put one formerly  [" + string(other) +
			": a guest without a record (and 1 more)]"}},
		{"disks without an owner are left alone", func(l *logbook) {
			if err := os.Mkdir(filepath.Join(l.dir, string(guest)), 0o700); err != nil {
				l.t.Fatal(err)
			}
		}, "[" + string(guest) + "]", nil},
		{"more is claimed than offered", func(l *logbook) {
			l.claims[guest] = croft.Resources{croft.VCPU: 4}
			l.told.Instances = map[croft.InstanceID]croft.Instance{guest: {ID: guest, State: croft.StateScheduling,
				Session: "living"}}
			l.told.Sessions = map[string]bool{"living": true}
		}, "[" + string(guest) + "]", []string{"put one formerly  [it has become smaller than its use: 4 of VCPU are " +
			"claimed and 3 offered; nothing new comes here until that is less, and its guests stay as they are]"}},
		{"all that is offered is claimed", func(l *logbook) {
			l.claims[guest] = croft.Resources{croft.VCPU: 3}
			l.told.Instances = map[croft.InstanceID]croft.Instance{guest: {ID: guest, State: croft.StateScheduling,
				Session: "living"}}
			l.told.Sessions = map[string]bool{"living": true}
		}, "[" + string(guest) + "]", nil},
		{"a tombstone and a problem are not the sweep's", func(l *logbook) {
			l.told.Orders = []croft.Order{{Host: here, Instance: guest, Want: croft.WantGone}}
			l.told.Hosts = map[croft.HostID]croft.Host{here: {ID: here, Alive: true, Problems: []string{"a problem"}}}
		}, "[]", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, a := alone(t)
			c.with(l)
			a.sweep(t.Context())
			early := slices.DeleteFunc(slices.Clone(l.steps), func(s string) bool {
				return strings.Contains(s, "smaller")
			})
			if len(early) > 0 || !slices.Contains(l.calls, "evidence "+c.reads) {
				t.Errorf("the first sweep does %q of %q", early, l.calls)
			}
			a.sweep(t.Context())
			l.want(t, c.steps...)
			// A repaired difference is no longer reported, and a problem is written once, until it is over.
			l.claims, l.told, l.others = map[croft.InstanceID]croft.Resources{}, audit.Evidence{}, nil
			a.sweep(t.Context())
			if len(c.steps) > 0 && strings.HasPrefix(c.steps[0], "put") {
				l.want(t, "put one formerly  []")
			}
			l.want(t)
			if len(a.foundHere) > 0 && !l.has("") {
				t.Errorf("still found: %v", a.foundHere)
			}
		})
	}
}

func TestASweepEndsWithWhatFails(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"claims", "list", "evidence [" + string(guest) + "]", "record", "release [h]"} {
		t.Run(call, func(t *testing.T) {
			l, a := alone(t)
			// a claim without an instance, for more than the host offers
			l.claims[guest] = croft.Resources{croft.VCPU: 9}
			if err := a.sweepHost(t.Context()); err != nil {
				t.Fatal(err)
			}
			l.calls, l.steps = nil, nil
			l.fail = failing(errPlanned, call)
			if err := a.sweepHost(t.Context()); !errors.Is(err, errPlanned) {
				t.Errorf("got %v", err)
			}
			if last := l.calls[len(l.calls)-1]; last != call {
				t.Errorf("after %s it does %s", call, last)
			}
		})
	}
	t.Run("the host's record", func(t *testing.T) {
		l, a := alone(t)
		l.claims[guest] = croft.Resources{croft.VCPU: 9}
		l.fail = failing(errPlanned, "hosts")
		if err := a.sweepHost(t.Context()); !errors.Is(err, errPlanned) {
			t.Errorf("got %v", err)
		}
	})
}

// turnless are records whose turn cannot be read.
type turnless struct{ audit.Shared }

func (turnless) TakeTurn(context.Context, time.Duration) (bool, error) { return false, errPlanned }

func TestAnAgentThatDoesNotServeItsHostSweepsNothing(t *testing.T) {
	t.Parallel()
	l, a := alone(t)
	a.locked.Store(false)
	a.sweep(t.Context())
	if len(l.calls) > 0 {
		t.Errorf("it does %q", l.calls)
	}
	a.locked.Store(true)
	a.caretaker.Shared = turnless{}
	a.sweep(t.Context())
	if len(l.calls) > 0 {
		t.Errorf("without the records it does %q", l.calls)
	}
	a.caretaker.Shared = nil
	a.sweep(t.Context())
	if len(l.calls) == 0 {
		t.Error("it does nothing")
	}
	a.locked.Store(false)
	l.order, l.calls = &croft.Order{Want: croft.WantRunning}, nil
	a.pass(t.Context(), guest)
	if len(l.calls) > 0 || !slices.Equal(a.instances.ids(), []croft.InstanceID{guest}) {
		t.Errorf("a pass does %q and remembers %v", l.calls, a.instances.ids())
	}
}

func TestAForgottenHostIsSaidToBeOnce(t *testing.T) {
	t.Parallel()
	for _, known := range []bool{false, true} {
		l, a := alone(t)
		var said bytes.Buffer
		a.Log = slog.New(slog.NewTextHandler(&said, nil))
		a.known.Store(known)
		l.claims = nil
		for range 3 {
			if err := a.sweepHost(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if got := strings.Count(said.String(), "was forgotten") == 1; got != known {
			t.Errorf("known: %v, and it says %q", known, said.String())
		}
		l.want(t)
	}
}

func TestAHostIsIntroducedByItsNameAndTheFormerOne(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		before *croft.Host
		want   string
	}{
		{"a new host", nil, "put one formerly  []"},
		{"a known one", &croft.Host{ID: here, Name: "one"}, "put one formerly  []"},
		{"one with another name", &croft.Host{ID: here, Name: "two", FormerName: "three"}, "put one formerly two []"},
		{"one that had another name", &croft.Host{ID: here, Name: "one", FormerName: "two"},
			"put one formerly two []"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, a := alone(t)
			if c.before != nil {
				l.hosts = map[croft.HostID]croft.Host{here: *c.before}
			}
			if err := a.introduce(t.Context()); err != nil {
				t.Error(err)
			}
			l.want(t, c.want)
			l.fail = failing(errPlanned, "hosts")
			if err := a.introduce(t.Context()); !errors.Is(err, errPlanned) {
				t.Errorf("got %v", err)
			}
			l.want(t)
		})
	}
}

// The pauses between attempts grow to a limit; a taken name is replaced immediately, and once.
func TestAHostIsOfferedUntilThatSucceeds(t *testing.T) {
	t.Parallel()
	taken := croft.Errorf(croft.Conflict, "the name is taken")
	for _, c := range []struct {
		name  string
		fails map[string]error // by step
		until time.Duration    // when the failures end
		takes time.Duration
		steps int
	}{
		{"at once", nil, 0, 0, 2},
		{"when Placement answers", map[string]error{"offer one": errPlanned}, 10 * time.Second,
			(500 + 1000 + 2000 + 4000 + 8000) * time.Millisecond, 7},
		{"when etcd answers", map[string]error{"put one formerly  []": errPlanned}, 1200 * time.Millisecond,
			1500 * time.Millisecond, 6},
		{"no longer apart than 15 seconds", map[string]error{"offer one": errPlanned}, time.Minute,
			(500 + 1000 + 2000 + 4000 + 8000 + 3*15000) * time.Millisecond, 10},
		{"under another name", map[string]error{"offer one": taken}, time.Hour, 0, 3},
		{"under another name, when that is free",
			map[string]error{"offer one": taken, "offer one-0123abcd": taken}, 1200 * time.Millisecond,
			1500 * time.Millisecond, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, a := alone(t)
				a.Host.ID = "0123abcd-ef01-4b62-a1a1-5b6c0e1c2d3f"
				begun := time.Now()
				l.fail = func(call string) error {
					if time.Since(begun) < c.until {
						return c.fails[call]
					}
					return nil
				}
				if !a.announce(t.Context()) || time.Since(begun) != c.takes || len(l.steps) != c.steps {
					t.Errorf("after %s it has done %q", time.Since(begun), l.steps)
				}
				if a.troubles.known.Load() != nil {
					t.Error("it still says what was wrong")
				}
				last := l.steps[len(l.steps)-1]
				told := strings.Contains(last, "another host has the name one")
				if other := a.Provider.Name != "one"; other != told {
					t.Errorf("offered as %s it writes %s", a.Provider.Name, last)
				}
			})
		})
	}
	t.Run("or its agent ends", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l, a := alone(t)
			l.fail = failing(errPlanned, "offer one")
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if a.announce(ctx) || !errors.Is(*a.troubles.known.Load(), errPlanned) {
				t.Error("it is offered")
			}
		})
	})
}

func TestARetiredHostOffersNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		fail func(string) error
		want bool
	}{
		{"its agent ends", nil, true},
		{"Placement does not answer at first", failing(errPlanned, "claims"), true},
		{"Placement does not answer", failing(errPlanned, "claims", "offer one"), true},
		{"the host was forgotten", failing(croft.Errorf(croft.NotFound, "no provider"), "claims"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, a := alone(t)
			l.fail = c.fail
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := a.retire(ctx); err != nil {
				t.Error(err)
			}
			if (len(l.offered) == 1) != c.want {
				t.Fatalf("offered: %v", l.offered)
			}
			if !c.want {
				return
			}
			p := l.offered[0]
			if p.Inventories[croft.VCPU].Capacity() != 0 || !slices.Contains(p.Traits, "COMPUTE_STATUS_DISABLED") ||
				!slices.Contains(p.Traits, "T") {
				t.Errorf("offered: %+v", p)
			}
			if a.Provider.Inventories[croft.VCPU].Capacity() == 0 || len(a.Provider.Traits) != 1 {
				t.Errorf("its own is now %+v", a.Provider)
			}
		})
	}
}

func TestWhoMayServeAHost(t *testing.T) {
	t.Parallel()
	const me = "the machine"
	for _, c := range []struct {
		name    string
		locked  bool // it has served before
		rival   *croft.Agent
		last    *croft.Host
		orders  int
		fail    func(string) error
		serves  bool
		begins  bool // all instances are examined
		refused bool // with a reason
	}{
		{"the first agent", false, nil, nil, 0, nil, true, true, false},
		{"the one that served it", false, nil, &croft.Host{ID: here, Place: me}, 3, nil, true, true, false},
		{"the one that serves it, after its lease was lost for a while", true, nil, &croft.Host{ID: here, Place: me}, 3,
			nil, true, false, false},
		{"the one that serves it, after it was accepted anew", true, nil, &croft.Host{ID: here}, 3, nil, true, true,
			false},
		{"an accepted one", false, nil, &croft.Host{ID: here}, 3, nil, true, true, false},
		{"one elsewhere, where nothing is ordered", true, nil, &croft.Host{ID: here, Place: "there"}, 0, nil, true,
			true, false},
		{"none elsewhere, where something is", true, nil, &croft.Host{ID: here, Place: "there"}, 1, nil, false, false,
			true},
		{"none beside another", true, &croft.Agent{Name: "two"}, &croft.Host{ID: here, Place: me}, 0, nil, false, false,
			true},
		{"none that cannot read its record", false, nil, nil, 0, failing(errPlanned, "hosts"), false, false, false},
		{"none that cannot read the orders", false, nil, &croft.Host{ID: here, Place: "there"}, 0,
			failing(errPlanned, "evidence []"), false, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, a := alone(t)
			a.Host.Place = me
			a.locked.Store(c.locked)
			former := "refused before"
			a.troubles.lock.Store(&former)
			if c.last != nil {
				l.hosts = map[croft.HostID]croft.Host{here: *c.last}
			}
			l.told.Orders, l.fail = make([]croft.Order, c.orders), c.fail
			locked := make(chan struct{}, 1)
			serves := a.take(t.Context(), c.rival, locked)
			if serves != c.serves || (len(locked) > 0) != c.begins {
				t.Errorf("it serves: %v, and begins: %v", serves, len(locked) > 0)
			}
			if (serves || c.refused) && a.locked.Load() != serves {
				t.Errorf("it holds the lock: %v", a.locked.Load())
			}
			why := a.troubles.lock.Load()
			if (why == nil) != serves || why != nil && c.refused == (*why == former) {
				t.Errorf("it is refused for %v", why)
			}
		})
	}
}

func TestARefusalIsSaidOnce(t *testing.T) {
	t.Parallel()
	_, a := alone(t)
	var said bytes.Buffer
	a.Log = slog.New(slog.NewTextHandler(&said, nil))
	for _, why := range []string{"this", "this", "that", "that"} {
		a.refuse(why)
	}
	if strings.Count(said.String(), "does nothing") != 2 {
		t.Errorf("said: %s", said.String())
	}
}

func TestAHostIsReadyOnceAllSeeItAlive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, a := alone(t)
		begun := time.Now()
		var asked []time.Duration
		l.hosts = map[croft.HostID]croft.Host{here: {ID: here}, "other": {Alive: true}}
		l.fail = func(string) error {
			asked = append(asked, time.Since(begun))
			if late := time.Since(begun); late > 25*time.Millisecond && late < 50*time.Millisecond {
				l.hosts[here] = croft.Host{ID: here, Alive: true} // an answer with an error is not used
				return errPlanned
			}
			return nil
		}
		want := []time.Duration{0, 10 * time.Millisecond, 30 * time.Millisecond, 70 * time.Millisecond}
		if !a.awaitLife(t.Context()) || !slices.Equal(asked, want) {
			t.Errorf("asked at %v, want %v", asked, want)
		}
		l.hosts, asked = nil, nil
		l.fail = func(string) error { asked = append(asked, 0); return nil }
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begun = time.Now()
		if a.awaitLife(ctx) || time.Since(begun) != time.Minute || len(asked) != 14 {
			t.Errorf("after %s it has asked %d times", time.Since(begun), len(asked))
		}
	})
}

func TestAResyncWakesAllThatConcernsTheHost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, a := alone(t)
		var woken []croft.InstanceID
		a.workers.Do = func(_ context.Context, id croft.InstanceID) {
			l.mu.Lock()
			defer l.mu.Unlock()
			woken = append(woken, id)
		}
		l.others = []Domain{{ID: "a"}, {ID: "b"}}
		a.instances.remember("b")
		a.instances.remember("c")
		a.instances.await("c", true)
		expect := func(ids ...croft.InstanceID) {
			t.Helper()
			a.workers.Wait()
			slices.Sort(woken)
			if !slices.Equal(woken, ids) {
				t.Errorf("woken: %v, want %v", woken, ids)
			}
			woken = nil
		}
		a.resync(t.Context())
		expect("a", "b", "c")
		if err := a.HypervisorReady(t.Context()); err != nil {
			t.Error(err)
		}
		a.lookAgain(t.Context())
		expect("c")
		a.instances.await("c", false)
		a.lookAgain(t.Context())
		expect()
		a.instances.await("c", true)
		a.instances.forget("c")
		a.lookAgain(t.Context())
		expect()
		l.fail = failing(errPlanned, "list")
		a.resync(t.Context())
		expect()
		if err := a.HypervisorReady(t.Context()); !errors.Is(err, errPlanned) {
			t.Errorf("got %v", err)
		}
		l.fail = nil
		a.resync(t.Context())
		expect("a", "b")
		l.fail = failing(errPlanned, "list")
		if err := a.HypervisorReady(t.Context()); err != nil {
			t.Errorf("it asks again: %v", err)
		}
	})
}
