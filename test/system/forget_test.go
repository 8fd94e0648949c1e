package system

import (
	"errors"
	"fmt"
	"testing"

	"croft"
	"croft/schedule"
)

// TestAForgetThatDiesAnywhereCanBeRepeated kills the command at each of its writes, repeats it, and then brings the
// host back.
func TestAForgetThatDiesAnywhereCanBeRepeated(t *testing.T) {
	for last := 1; last <= 11; last++ {
		t.Run(fmt.Sprintf("after %d crossings", last-1), func(t *testing.T) {
			w := newWorld(t, uint64(last), 2, 0)
			inst := w.throwaway(t.Context())
			for _, m := range w.hosts {
				if m.id == inst.Host {
					m.leave()
				}
			}
			forget := func(o *operator) error {
				_, err := o.Forget(t.Context(), string(inst.Host), true)
				return err
			}
			died := w.operate(last, forget)
			if err := w.operate(0, forget); err != nil && !errors.Is(err, croft.NotFound) {
				t.Fatalf("repeated after %v: %v", died, err)
			}
			hosts, err := w.store.Registry.Hosts(t.Context())
			if err != nil || len(hosts) != 1 {
				t.Fatalf("got %v, %v; want the other host alone", hosts, err)
			}
			if found := w.audit(t.Context()); len(found) != 0 {
				t.Errorf("while the host is away: %v", found)
			}
			lost, err := w.store.Instances.Instance(t.Context(), inst.ID)
			if err != nil || lost.State != croft.StateLost || lost.Host != "" {
				t.Fatalf("its instance is %+v, %v; want it lost", lost, err)
			}
			tombstone := schedule.NewOrder(w.store.Partition(), lost, lost.Lost.Host, croft.WantGone)
			if err := w.store.Instances.Bury(t.Context(), lost, tombstone); err != nil { // an operator gives it up
				t.Fatal(err)
			}
			w.facts[inst.ID].destroyed, w.doomed[inst.ID] = true, true
			w.settle() // the host returns, with a guest that must go
		})
	}
}

// The claims of the host end when it is forgotten.
func TestTheVolumesOfAForgottenHostThatReturnsAreClaimedAgain(t *testing.T) {
	w := newWorld(t, 1, 2, 0)
	var v croft.Volume
	err := w.disks(0, func(s diskService) (err error) {
		v, err = s.Create(t.Context(), croft.DefaultProject, "data", 2, "")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	w.await(t, "the volume is made", func() bool {
		now, err := w.store.Volumes.Find(t.Context(), v.Project, v.Name)
		return err == nil && now.MadeGB == 2
	})
	gone := w.machine(v.Host)
	gone.leave()
	err = w.operate(0, func(o *operator) error {
		_, err := o.Forget(t.Context(), string(v.Host), true)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	gone.boot(0)
	w.awaitAlive(v.Host)
	w.await(t, "the volume is claimed again", func() bool {
		claim, err := w.claims.ClaimOf(t.Context(), v.ID.Consumer())
		return err == nil && claim.Allocations[v.Host][croft.DiskGB] == 2
	})
	w.settle()
}
