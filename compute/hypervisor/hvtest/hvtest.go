// Package hvtest is the contract of compute.Hypervisor as tests. Every driver passes it, so results with
// simulated guests hold for real ones.
package hvtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"croft"
	"croft/compute"
)

// patience is the timeout for events that must happen eventually. It is generous for busy machines and no
// performance limit.
const patience = 2 * time.Minute

// Suite configures the contract tests for one driver. They run in parallel and share the hypervisor with
// other users, so they look only at their own instances.
type Suite struct {
	// New returns a driver of the host under test and closes it when the test ends.
	New func(t *testing.T) compute.Hypervisor
	// Restart simulates a restart of the agent: it returns a driver that finds the state left by the first.
	// Nil: New already does so.
	Restart func(t *testing.T, first compute.Hypervisor) compute.Hypervisor
	// Machine describes a new machine whose guest ignores the power button. It removes the machine's files at
	// the end of the test; the suite removes the machine.
	Machine func(t *testing.T) compute.Machine
	// Kill ends the guest from outside, like the death of its process.
	Kill func(t *testing.T, hv compute.Hypervisor, id croft.InstanceID)
	// Pause suspends the guest; its process stays.
	Pause func(t *testing.T, hv compute.Hypervisor, id croft.InstanceID)
	// Halt makes the guest with the disk Halting power itself off, if it does not do so at boot.
	Halt func(t *testing.T, hv compute.Hypervisor, id croft.InstanceID)
	// Foreign creates a machine that is not croft's and removes it at the end of the test. Nil: the driver
	// cannot have any.
	Foreign func(t *testing.T) croft.InstanceID
	// Late returns another driver of the host, whose calls can be held.
	Late func(t *testing.T) Late
}

// Machine returns a machine of minimal size with an empty disk in a test directory that the hypervisor's
// processes can read.
func Machine(t *testing.T) compute.Machine {
	t.Helper()
	dir, err := os.MkdirTemp("", "croft-hvtest-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	disk := filepath.Join(dir, "disk")
	if err := os.WriteFile(disk, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	id := croft.NewInstanceID()
	return compute.Machine{
		ID: id, Partition: croft.NewPartitionID(), Ordered: compute.Ordered{Generation: 1},
		Name: "hvtest", VCPUs: 1, MemoryMiB: 32,
		Disk:    []compute.Layer{{Path: disk, Format: "raw"}},
		Console: filepath.Join(dir, "console.log"),
	}
}

// Run runs the contract tests.
func (s Suite) Run(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"what is not defined is not found":                             s.notFound,
		"an instance lives from define to remove":                      s.life,
		"every step may be repeated":                                   s.repeated,
		"what is defined stays with its mark over a restart":           s.restart,
		"a definition of the same instance replaces the earlier":       s.redefine,
		"a mark is kept, whether the guest runs or not":                s.marked,
		"an instance of another partition is a conflict":               s.otherPartition,
		"a machine that cannot be is invalid":                          s.invalid,
		"a running instance can be removed at once":                    s.removeRunning,
		"stop cuts the power of a guest that does not listen":          s.stop,
		"a CD is ejected, whether the guest runs or not":               s.eject,
		"the power is cut without asking the guest":                    s.cutPower,
		"stop ends early with its context, and the power is cut":       s.stopContext,
		"a guest that dies is off and crashed, and starts again":       s.crash,
		"a paused guest is paused, and start lets it go on":            s.pause,
		"watch wakes for what is there, and on start, stop and death":  s.watch,
		"watch returns when its context ends":                          s.watchEnds,
		"many instances at once do not disturb each other":             s.many,
		"one instance asked for many things at once ends in one state": s.contended,
		"what croft did not make is not there":                         s.foreign,
		"a guest that powers itself off is told from others":           s.halt,
		"which generation a guest was started for is kept":             s.started,
		"what a guest uses is told while it runs, and grows":           s.usages,
		"volumes are those of the definition, and come and go":         s.volumes,
		"volumes come and go while a guest runs":                       s.volumesWhileItRuns,
		"what is not defined has no volumes":                           s.volumesOfNothing,
		"disks get overlays and lose them while a guest runs":          s.snapshots,
		"what is not defined has no disks":                             s.disksOfNothing,
		"a chosen address is that of one machine":                      s.chosen,
		"commands run only in guests that run and have an agent":       s.commands,
		"a domain gets another size, and its disk grows":               s.resize,
		"a machine of every kind that the host has starts":             s.kinds,
		"PCI devices are those that were last given":                   s.pci,
		"a call that its caller left comes before what is asked later": s.late,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

// bench is one test's driver and context.
type bench struct {
	*testing.T
	ctx context.Context
	hv  compute.Hypervisor
}

func (s Suite) bench(t *testing.T) bench {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return bench{T: t, ctx: ctx, hv: s.New(t)}
}

// machine returns a machine that is removed from the hypervisor at the end of the test.
func (s Suite) machine(b bench) compute.Machine {
	b.Helper()
	m := s.Machine(b.T)
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(b.ctx), patience)
		defer cancel()
		if err := b.hv.Remove(ctx, m.ID); err != nil {
			b.Errorf("clean up: %v", err)
		}
	})
	return m
}

func (b bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b bench) kind(err error, want croft.Kind) {
	b.Helper()
	if croft.KindOf(err) != want {
		b.Errorf("got %v (%q), want %q", err, croft.KindOf(err), want)
	}
}

func (b bench) get(id croft.InstanceID) compute.Domain {
	b.Helper()
	d, err := b.hv.Get(b.ctx, id)
	b.must(err)
	return d
}

// power checks that Get and List agree on the power of an instance.
func (b bench) power(id croft.InstanceID, want compute.Power) {
	b.Helper()
	if got := b.get(id).Power; got != want {
		b.Errorf("its power is %q, want %q", got, want)
	}
	d, ok := b.listed(id)
	if !ok || d.Power != want {
		b.Errorf("listed: %v with power %q, want %q", ok, d.Power, want)
	}
}

func (b bench) listed(id croft.InstanceID) (compute.Domain, bool) {
	b.Helper()
	list, err := b.hv.List(b.ctx)
	b.must(err)
	i := slices.IndexFunc(list, func(d compute.Domain) bool { return d.ID == id })
	if i < 0 {
		return compute.Domain{}, false
	}
	return list[i], true
}

func (b bench) gone(id croft.InstanceID) {
	b.Helper()
	if _, ok := b.listed(id); ok {
		b.Error("it is still listed")
	}
	_, err := b.hv.Get(b.ctx, id)
	b.kind(err, croft.NotFound)
}

// watch runs Watch until the test ends and returns the wake-ups of one instance; pending wake-ups coalesce.
func (b bench) watch(id croft.InstanceID) <-chan struct{} {
	b.Helper()
	ctx, cancel := context.WithCancel(b.ctx)
	wakes := make(chan struct{}, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		err := b.hv.Watch(ctx, func(woken croft.InstanceID) {
			if woken != id {
				return
			}
			select {
			case wakes <- struct{}{}:
			default:
			}
		})
		if !errors.Is(err, context.Canceled) {
			b.Errorf("watch ended with %v", err)
		}
	})
	b.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return wakes
}

// until waits for wake-ups until the instance fulfils ok, as the agent does.
func (b bench) until(wakes <-chan struct{}, what string, id croft.InstanceID, ok func(compute.Domain) bool) {
	b.Helper()
	for {
		select {
		case <-wakes:
		case <-b.ctx.Done():
			b.Fatalf("no wake when %s; it is %+v", what, b.get(id))
		}
		if ok(b.get(id)) {
			return
		}
	}
}
