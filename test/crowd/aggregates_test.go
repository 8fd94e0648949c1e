package crowd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"croft"
)

// Hosts join aggregates and leave them while many schedulers choose by them. At the revision of each order, the order's
// host is a member of the required aggregate and not of the excluded one.
func TestAggregatesHoldAtTheMomentOfTheOrder(t *testing.T) {
	const hosts, places, users, each = 4, 10, 10, 2
	seed := rand.Uint64()
	t.Logf("sampled: seed %d", seed)
	c := newCloud(t)
	for i := range hosts {
		c.addHost(fmt.Sprint("host", i), places)
	}
	history := map[string][]croft.Aggregate{} // by name, oldest first
	for _, name := range []string{"in", "out"} {
		a, err := c.store.Aggregates.Create(t.Context(), croft.Aggregate{Name: name, Hosts: c.hosts[:1]})
		c.check(err)
		history[name] = append(history[name], a)
	}
	ctx, stop := context.WithCancel(t.Context())
	var operator, work sync.WaitGroup
	operator.Go(func() {
		random := rand.New(rand.NewPCG(seed, 0))
		for ctx.Err() == nil {
			name := []string{"in", "in", "out"}[random.IntN(3)]
			host := []croft.HostID{c.hosts[random.IntN(hosts)]}
			change := croft.AggregateChange{Add: host}
			if random.IntN(2) == 0 {
				change = croft.AggregateChange{Remove: host}
			}
			a, err := c.store.Aggregates.Change(t.Context(), name, change)
			c.check(err)
			history[name] = append(history[name], a)
		}
	})
	placed := make(chan croft.Instance, users*each)
	for i, s := range c.schedulers(users) {
		work.Go(func() {
			for n, j := 0, 0; n < each && !t.Failed(); j++ {
				r := c.request(name(i, j))
				r.Query.In = []croft.Bound{"!out", "in"}
				d, err := s.Request(t.Context(), r)
				if err == nil {
					placed <- d.Instance
					n++
				} else if !errors.Is(err, croft.NoCapacity) && !errors.Is(err, croft.Conflict) {
					t.Errorf("request %s: %v", r.Name, err)
				}
			}
		})
	}
	work.Wait()
	stop()
	operator.Wait()
	close(placed)
	for inst := range placed {
		if !at(history["in"], inst.Revision).Has(inst.Host) || at(history["out"], inst.Revision).Has(inst.Host) {
			t.Errorf("%s is on %s since revision %d; in is %+v, out %+v", inst.Name, inst.Host, inst.Revision,
				at(history["in"], inst.Revision), at(history["out"], inst.Revision))
		}
		c.check(destroy(t.Context(), c.schedulers(1)[0], inst))
	}
	t.Logf("%d changes were made meanwhile", len(history["in"])+len(history["out"]))
	c.wantOnly()
}

// at returns the version of an aggregate at a revision.
func at(history []croft.Aggregate, revision int64) (a croft.Aggregate) {
	for _, version := range history {
		if version.Generation <= revision {
			a = version
		}
	}
	return a
}
