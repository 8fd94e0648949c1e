package crowd

import (
	"errors"
	"os"
	"sync"
	"testing"

	"croft"
	"croft/schedule"
)

func soak() bool { return os.Getenv("CROFT_SOAK") != "" }

// A hundred schedulers want the last slot concurrently: exactly one gets it, all others report no capacity and
// leave nothing behind.
func TestTheLastSlotGoesToOne(t *testing.T) {
	const rivals = 100
	c := newCloud(t)
	c.addHost("host1", 1)
	schedulers := c.schedulers(rivals)
	for round := range soaking(8, 1000) {
		if t.Failed() {
			return
		}
		decisions := make([]schedule.Decision, rivals)
		errs := make([]error, rivals)
		var work sync.WaitGroup
		for i, s := range schedulers {
			r := c.request(name(round, i))
			work.Go(func() { decisions[i], errs[i] = s.Request(t.Context(), r) })
		}
		work.Wait()
		var winners []int
		for i, err := range errs {
			switch {
			case err == nil:
				winners = append(winners, i)
			case !errors.Is(err, croft.NoCapacity):
				t.Errorf("round %d: scheduler %d: %v", round, i, err)
			}
		}
		if len(winners) != 1 {
			t.Fatalf("round %d: %d schedulers got the last slot", round, len(winners))
		}
		won := decisions[winners[0]].Instance
		c.wantOnly(won.ID)
		if err := destroy(t.Context(), schedulers[winners[0]], won); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		c.wantOnly()
	}
}
