package compute_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"croft"
	"croft/compute"
	"croft/compute/hypervisor/sim"
)

// An instance is destroyed during the hypervisor's Define, which continues after the agent has started on the
// tombstone.
func TestADefinitionThatIsLateLeavesNoDomain(t *testing.T) {
	t.Parallel()
	begun, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	c := newCloudOf(t, sim.Config{Late: func(op string, _ croft.InstanceID) {
		if op == sim.OpDefine {
			once.Do(func() { close(begun) })
			<-release
		}
	}})
	c.start()
	inst := c.request("web")
	<-begun
	inst = c.reorder(inst, croft.WantGone)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		c.await(inst, "")
	}()
	select {
	case <-gone: // the tombstone was carried out before the call that it must undo
	case <-time.After(500 * time.Millisecond):
	}
	close(release)
	<-gone
	c.stop() // this ends all calls
	list, err := c.hv.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(list, func(d compute.Domain) bool { return d.ID == inst.ID }) {
		t.Error("the domain of an instance that is gone is left behind")
	}
	c.bare(inst)
}
