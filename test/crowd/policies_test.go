package crowd

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"

	"croft"
	"croft/schedule"
)

// Schedulers of different machines, which number the hosts concurrently, put every instance where each of the others
// would, while the cloud fills up to its last place.
func TestAllSchedulersChooseTheSameHosts(t *testing.T) {
	const hosts, places, users = 6, 4, 4
	c := newCloud(t)
	for i := range hosts {
		c.addHost(fmt.Sprint("host", i), places)
	}
	_, err := c.store.Policies.Set(t.Context(), croft.CrushPolicy{Name: "any", Text: "select 1 rack; take 1"}, nil)
	c.check(err)
	policy, err := schedule.PolicyNamed("crush:any")
	c.check(err)
	all := c.schedulers(users)
	request := func(name string) schedule.Request {
		r := c.request(name)
		r.Policy, r.ID = policy, croft.NewInstanceID()
		return r
	}

	one := request("one")
	traces := make([]*schedule.Explanation, users)
	var work sync.WaitGroup
	for i, s := range all {
		work.Go(func() {
			var err error
			if traces[i], err = s.Explain(t.Context(), one); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	for i, why := range traces {
		if t.Failed() || len(why.Trace) != hosts || !reflect.DeepEqual(why.Trace, traces[0].Trace) {
			t.Fatalf("scheduler %d gives %+v, and the first %+v", i, why, traces[0])
		}
	}

	placed := make(chan croft.Instance, hosts*places)
	for i, s := range all {
		work.Go(func() {
			for j := range hosts * places / users {
				r := request(name(i, j))
				d, err := s.Request(t.Context(), r)
				if err != nil {
					t.Errorf("request %s: %v", r.Name, err)
					return
				}
				placed <- d.Instance
			}
		})
	}
	work.Wait()
	close(placed)
	var ids []croft.InstanceID
	for inst := range placed {
		ids = append(ids, inst.ID)
		s := all[len(ids)%users]
		found, err := s.Standing(t.Context(), croft.DefaultProject, string(inst.ID))
		c.check(err)
		// Now the cloud is full: every host that precedes the instance's own either has no room or refused it.
		if !found.Stands || found.HostID != inst.Host || len(found.Refused) != len(inst.Refused) {
			t.Errorf("instance %s on %s after %+v: %+v", inst.ID, inst.Host, inst.Refused, found)
		}
	}
	_, err = all[0].Request(t.Context(), request("last"))
	if !errors.Is(err, croft.NoCapacity) {
		t.Errorf("one more: %v", err)
	}
	c.wantOnly(ids...)
}
