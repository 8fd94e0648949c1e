package compute

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/internal/delay"
	"croft/internal/mailbox"
)

// forgetful are orders in memory, of which one read fails once.
type forgetful struct {
	Orders
	order   croft.Order
	fails   string // the read that fails
	asked   map[string][]time.Time
	blocked bool // another host still has parts of the instance
}

func (f *forgetful) ask(read string) error {
	f.asked[read] = append(f.asked[read], time.Now())
	if read == f.fails && len(f.asked[read]) == 1 {
		return croft.Errorf(croft.Unavailable, "etcd restarts")
	}
	return nil
}

func (f *forgetful) Order(context.Context, croft.HostID, croft.InstanceID) (croft.Order, error) {
	return f.order, f.ask("order")
}

func (f *forgetful) Observed(context.Context, croft.HostID, croft.InstanceID) (croft.Observation, error) {
	if err := f.ask("observed"); err != nil {
		return croft.Observation{}, err
	}
	return croft.Observation{}, croft.Errorf(croft.NotFound, "none")
}

func (f *forgetful) Remains(context.Context, croft.HostID, croft.InstanceID) (bool, error) {
	return f.blocked, f.ask("remains")
}

func (f *forgetful) Observe(context.Context, croft.Observation) error { return f.ask("observe") }

// empty is a hypervisor without domains.
type empty struct{ Hypervisor }

func (empty) Get(_ context.Context, id croft.InstanceID) (Domain, error) {
	return Domain{}, croft.Errorf(croft.NotFound, "no domain %s", id)
}

// Failed reads and writes are retried soon, not only at the next resync.
func TestAReadThatFailedIsRepeatedSoon(t *testing.T) {
	t.Parallel()
	for _, fails := range []string{"order", "observed", "remains", "observe"} {
		t.Run(fails, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				id := croft.NewInstanceID()
				f := &forgetful{fails: fails, asked: map[string][]time.Time{}, blocked: true,
					order: croft.Order{Partition: "p", Instance: id, Generation: 1, Want: croft.WantRunning,
						MovedFrom: croft.NewHostID()}}
				a := &Agent{Config: Config{Host: croft.Host{ID: "h"}, Partition: "p", Orders: f, Hypervisor: empty{},
					Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)},
					instances: instances{all: map[croft.InstanceID]*memory{}, awaited: map[croft.InstanceID]bool{}},
					reporters: mailbox.New[croft.InstanceID]()}
				a.metrics = newMetrics(a.builds, &a.locked, &a.known, a.instances.states)
				a.locked.Store(true)
				a.workers.Do = a.pass
				ctx, cancel := context.WithCancel(t.Context())
				go delay.Every(ctx, awaitPoll, a.lookAgain)
				begun := time.Now()
				a.workers.Wake(ctx, id)
				time.Sleep(3 * time.Second)
				cancel()
				a.workers.Wait()
				if asked := f.asked[fails]; len(asked) != 2 || asked[1].Sub(begun) < awaitPoll {
					t.Errorf("it was asked at %v, begun at %s", asked, begun)
				}
			})
		})
	}
}
