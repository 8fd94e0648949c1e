package system

import (
	"strings"
	"testing"

	"croft"
)

// A guest that is being moved keeps its capacity on the old host until it is gone, although the host takes orders
// again.
func TestAMovedGuestKeepsItsRoomUntilItHasGone(t *testing.T) {
	w := newWorld(t, 1, 2, 0)
	inst := w.throwaway(t.Context())
	first := w.machineOf(inst.Host)
	first.dead.Store(true)
	w.empty(t, first.id)
	second := w.found(t, inst.ID).Instance.Host
	if second == first.id {
		t.Fatal("it was not moved")
	}
	for _, host := range []croft.HostID{first.id, second} {
		claims, err := w.claims.Claims(t.Context(), host)
		if err != nil || len(claims[inst.ID]) != 3 {
			t.Errorf("on host %s it claims %v, %v", host, claims[inst.ID], err)
		}
	}
	for _, found := range w.audit(t.Context()) {
		if strings.Contains(found, "claim") {
			t.Error(found)
		}
	}
	first.dead.Store(false)
	w.await(t, "the claim is where the guest is", func() bool {
		claims, err := w.claims.Claims(t.Context(), first.id)
		return err == nil && len(claims) == 0
	})
	w.settle()
}

// The command that moved it died after the claim was made and before anything was ordered.
func TestAnInterruptedMoveLeavesTheRoomWhereTheGuestIs(t *testing.T) {
	w := newWorld(t, 1, 2, 0)
	inst := w.throwaway(t.Context())
	here := inst.Host
	there := w.hosts[1-w.machineOf(here).n].id
	if err := w.store.Registry.Drain(t.Context(), here); err != nil {
		t.Fatal(err)
	}
	w.tally.kill("after operator Reclaim")
	err := w.operate(0, func(o *operator) error {
		h, err := o.Drain(t.Context(), string(here))
		if err == nil {
			_, err = o.MoveAll(t.Context(), h)
		}
		return err
	})
	t.Logf("the mover: %v", err)
	w.claimed(t, here)
	claims, err := w.claims.Claims(t.Context(), there)
	if err != nil || len(claims[inst.ID]) != 3 {
		t.Errorf("on the other host it claims %v, %v", claims, err)
	}
	w.settle()
}
