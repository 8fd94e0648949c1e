// Package hvtest is the contract of compute.Hypervisor as tests. Every driver
// passes it, so what is tried on simulated guests holds for real ones.
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

// patience is how long the suite waits for what must come in the end. It is no
// measurement: a busy machine may need much of it.
const patience = 2 * time.Minute

// Suite is what the contract needs of a driver under test. The tests run at once
// and beside other users of the same hypervisor, so they look at their own
// instances only.
type Suite struct {
	// New returns a driver of the host under test and closes it when the test ends.
	New func(t *testing.T) compute.Hypervisor
	// Restart stands for a second start of the agent: a driver that finds what the
	// first one left. Nil where New does so already.
	Restart func(t *testing.T, first compute.Hypervisor) compute.Hypervisor
	// Machine describes a new machine whose guest ignores the power button. It
	// removes the machine's files when the test ends; the suite removes the machine.
	Machine func(t *testing.T) compute.Machine
	// Kill ends the guest from outside, as the death of its process does.
	Kill func(t *testing.T, hv compute.Hypervisor, id croft.InstanceID)
	// Pause keeps the guest from running while it has a process.
	Pause func(t *testing.T, hv compute.Hypervisor, id croft.InstanceID)
	// Halt has the guest of a machine whose disk is Halting power itself off, where it
	// does not do so by itself at its start.
	Halt func(t *testing.T, hv compute.Hypervisor, id croft.InstanceID)
	// Foreign makes a machine that is not croft's, and removes it when the test
	// ends. Nil where there can be none.
	Foreign func(t *testing.T) croft.InstanceID
	// Late returns another driver of the host, whose calls can be held up.
	Late func(t *testing.T) Late
}

// Machine returns a machine of the least size with an empty disk in a directory
// of the test, readable for the processes of a hypervisor.
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
		ID: id, Partition: croft.NewPartitionID(), Generation: 1,
		Name: "hvtest", VCPUs: 1, MemoryMiB: 32,
		Disk:    []compute.Layer{{Path: disk, Format: "raw"}},
		Console: filepath.Join(dir, "console.log"),
	}
}

// Run runs the contract.
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

// machine returns a machine that is removed from the hypervisor when the test ends.
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

// watch runs Watch and returns where its wakes for one instance arrive; wakes that
// nobody waits for are one. The end of the test ends it.
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

// until waits for wakes until the instance is as wanted, as the agent does.
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
