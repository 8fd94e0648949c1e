package crowd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"croft"
	"croft/schedule"
)

// The groups that the random test uses, one per rule.
var groups = []croft.Affinity{
	{Group: "apart", Rule: croft.Apart},
	{Group: "apart2", Rule: croft.Apart},
	{Group: "together", Rule: croft.Together},
	{Group: "near", Rule: croft.TogetherSoft},
	{Group: "far", Rule: croft.ApartSoft},
	{Group: "racks", Rule: "at-most-2-per-rack"},
	{Group: "site", Rule: "at-most-1-per-host+same-site"},
}

// Many schedulers concurrently create and destroy members of the same groups at random. The store never violates a hard
// rule, and nothing remains at the end.
func TestGroupsHoldWhateverRunsAtOnce(t *testing.T) {
	const hosts, places, users = 4, 4, 12
	seed := rand.Uint64()
	t.Logf("sampled: seed %d", seed)
	c := newCloud(t)
	for i := range hosts {
		c.addHost(fmt.Sprintf("s%d.r.k%d.h", 1+i%2, 1+i/3), places)
	}
	watch, stop := context.WithCancel(t.Context())
	var watcher sync.WaitGroup
	watcher.Go(func() {
		_ = c.store.Instances.WatchInstances(watch, func() { c.checkGroups(watch) })
	})
	var work sync.WaitGroup
	for i, s := range c.schedulers(users) {
		u := &user{cloud: c, Scheduler: s, n: i, random: rand.New(rand.NewPCG(seed, uint64(i)))}
		work.Go(func() { u.play(t.Context(), soaking(15, 300)) })
	}
	work.Wait()
	c.checkGroups(t.Context())
	c.checkMembers()
	stop()
	watcher.Wait()
	all, err := c.store.Instances.List(t.Context(), "")
	c.check(err)
	for _, st := range all {
		c.check(destroy(t.Context(), c.schedulers(1)[0], st.Instance))
	}
	c.checkMembers()
	c.wantOnly()
}

// user creates and destroys instances.
type user struct {
	*cloud
	*schedule.Scheduler
	n      int
	random *rand.Rand
	mine   []croft.Instance
}

func (u *user) play(ctx context.Context, steps int) {
	for step := range steps {
		if len(u.mine) > 2 || len(u.mine) > 0 && u.random.IntN(3) == 0 {
			i := u.random.IntN(len(u.mine))
			if err := destroy(ctx, u.Scheduler, u.mine[i]); err != nil {
				u.Errorf("destroy %s: %v", u.mine[i].Name, err)
			}
			u.mine = slices.Delete(u.mine, i, i+1)
			continue
		}
		r := u.request(name(u.n, step), groups[u.random.IntN(len(groups))])
		if u.random.IntN(4) == 0 {
			r.Policy = schedule.Pack
		}
		d, err := u.Request(ctx, r)
		switch {
		case err == nil:
			u.mine = append(u.mine, d.Instance)
		case !errors.Is(err, croft.NoCapacity) && !errors.Is(err, croft.Conflict):
			u.Errorf("request %s: %v", r.Name, err)
		}
	}
}

// checkGroups checks all records, as of one moment, against the hard rules.
func (c *cloud) checkGroups(ctx context.Context) {
	all, err := c.store.Instances.List(ctx, "")
	if err != nil {
		return // the test is ending
	}
	for i, st := range all {
		for _, other := range all[:i] {
			a, b := st.Instance, other.Instance
			if a.Host == "" || b.Host == "" || a.Spec.Affinities[0] != b.Spec.Affinities[0] {
				continue
			}
			rule := a.Spec.Affinities[0]
			if !sit(a, b) {
				c.Errorf("%s: %s has the seats %v and %s %v", rule, a.Name, a.Seats, b.Name, b.Seats)
			}
			if rule.Rule == croft.Apart && a.Host == b.Host || rule.Rule == croft.Together && a.Host != b.Host {
				c.Errorf("%s: %s is on %s and %s on %s", rule, a.Name, a.Host, b.Name, b.Host)
			}
		}
	}
}

// sit reports whether two members of a group may hold their seats at the same time.
func sit(a, b croft.Instance) bool {
	for _, s := range a.Seats {
		if s.Counted() && slices.Contains(b.Seats, s) || !s.Counted() && !slices.Contains(b.Seats, s) {
			return false
		}
	}
	clauses, err := a.Spec.Affinities[0].Rule.Clauses()
	hard := a.Spec.Affinities[0].Rule.ByLocation() && err == nil
	return !hard || len(a.Seats) == len(clauses) && len(b.Seats) == len(clauses)
}

// checkMembers checks that the members and their seats match the records. Nothing may change meanwhile.
func (c *cloud) checkMembers() {
	c.Helper()
	all, err := c.store.Instances.List(c.Context(), "")
	c.check(err)
	want, seats := map[croft.GroupMember]bool{}, map[croft.Seat]bool{}
	for _, st := range all {
		inst := st.Instance
		want[croft.GroupMember{Affinity: inst.Spec.Affinities[0], Instance: inst.ID, Name: inst.Name,
			Host: inst.Host}] = true
		for _, s := range inst.Seats {
			s.Instance = inst.ID
			seats[s] = true
		}
	}
	for _, group := range groups {
		members, taken, err := c.store.Groups.Members(c.Context(), croft.DefaultProject, group.Group)
		c.check(err)
		for _, m := range members {
			if !want[m] {
				c.Errorf("%+v is a member without a record", m)
			}
			delete(want, m)
		}
		for _, s := range taken {
			if !seats[s] {
				c.Errorf("%+v is a seat without a record", s)
			}
			delete(seats, s)
		}
	}
	for s := range seats {
		c.Errorf("the seat %+v is not taken", s)
	}
	for m := range want {
		c.Errorf("%+v is no member", m)
	}
}
