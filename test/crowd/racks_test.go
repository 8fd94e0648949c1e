package crowd

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"croft"
)

// Forty concurrent requests of eight processes want to join a group with a limit per rack, on four racks with two hosts
// each that have room for all. The limit is met exactly, and all others get an error that lists the full racks. Refused
// requests leave nothing behind, so that a destroyed member's seat goes to the next.
func TestTheLimitPerRackHoldsWhateverRunsAtOnce(t *testing.T) {
	for _, limit := range []int{1, 3} {
		t.Run(fmt.Sprint("at most ", limit), func(t *testing.T) {
			c := newCloud(t)
			for i := range 8 {
				c.addHost(fmt.Sprintf("s1.r1.k%d.h%d", 1+i/2, i), 40)
			}
			group := croft.Affinity{Group: "web", Rule: croft.RuleOf(croft.Clause{AtMost: limit,
				Level: croft.LevelRack})}
			placed := c.rush(40, group)
			racks := map[string]int{}
			for _, inst := range placed {
				if len(inst.Seats) != 1 {
					t.Fatalf("%s has the seats %v", inst.Name, inst.Seats)
				}
				racks[inst.Seats[0].Location]++
			}
			if len(placed) != 4*limit || len(racks) != 4 {
				t.Errorf("%d of 40 are placed, in %v, want %d in each of 4 racks", len(placed), racks, limit)
			}
			ids := make([]croft.InstanceID, len(placed))
			for i, inst := range placed {
				ids[i] = inst.ID
			}
			c.wantOnly(ids...)
			s := c.schedulers(1)[0]
			c.check(destroy(t.Context(), s, placed[0]))
			d, err := s.Request(t.Context(), c.request("next", group))
			c.check(err)
			if len(d.Instance.Seats) != 1 || d.Instance.Seats[0] != placed[0].Seats[0] {
				t.Errorf("the next has %v, and %v was free", d.Instance.Seats, placed[0].Seats)
			}
		})
	}
}

// rush requests n members of a group concurrently, from eight schedulers, and returns those that were placed.
func (c *cloud) rush(n int, group croft.Affinity) (placed []croft.Instance) {
	c.Helper()
	schedulers := c.schedulers(8)
	var mu sync.Mutex
	var work sync.WaitGroup
	for i := range n {
		r := c.request(name("web", i), group)
		work.Go(func() {
			d, err := schedulers[i%len(schedulers)].Request(c.Context(), r)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				placed = append(placed, d.Instance)
			case croft.KindOf(err) != croft.NoCapacity || !strings.Contains(err.Error(), "of group web already") ||
				!strings.Contains(err.Error(), "rack s1/r1/k"):
				c.Errorf("%s: %v", r.Name, err)
			}
		})
	}
	work.Wait()
	return placed
}
