package schedule_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"croft"
	"croft/schedule"
	"croft/schedule/scheduletest"
)

// inOneStep sets the cloud's Placer.
func (c *cloud) inOneStep(fault func(croft.Order) error) *cloud {
	placer := &scheduletest.Placer{Memory: c.store, Placement: c.placement, Fault: fault}
	c.Placer = func() schedule.Placer { return placer }
	return c
}

func TestARequestInOneStep(t *testing.T) {
	c := newCloud(t, 1, 1).inOneStep(nil)
	d, err := c.Request(t.Context(), request(t, "web"))
	if err != nil {
		t.Fatal(err)
	}
	o, err := c.store.Order(t.Context(), c.hosts[0], d.Instance.ID)
	if err != nil || d.Host.ID != c.hosts[0] || d.Instance.State != croft.StateScheduled || d.Instance.Revision == 0 ||
		o.Want != croft.WantRunning || o.Generation != 1 {
		t.Errorf("%+v, %+v, %v", d, o, err)
	}
	_, err = c.Request(t.Context(), request(t, "web"))
	wantKind(t, err, croft.Conflict)
	if claims := c.placement.Claimed(); len(claims) != 1 {
		t.Errorf("claims %q", claims)
	}
}

// A refusal that concerns one host leads to the next host; any other refusal ends the request.
func TestTheHostsOfOneStepAreTriedInTurn(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		kind  croft.Kind
		tries int
	}{
		"a host that is full":    {croft.Errorf(croft.NoCapacity, "%w", schedule.ErrFull), "", 2},
		"a host that is closed":  {croft.Errorf(croft.Unavailable, "%w", schedule.ErrClosed), "", 2},
		"a name that is taken":   {croft.Errorf(croft.Conflict, "planned"), croft.Conflict, 1},
		"a quota":                {croft.Errorf(croft.OverQuota, "planned"), croft.OverQuota, 1},
		"a store without answer": {errPlanned, croft.Unavailable, 1},
	} {
		t.Run(name, func(t *testing.T) {
			cloud, tries := newCloud(t, 1, 1), 0
			cloud.inOneStep(func(croft.Order) error {
				if tries++; tries == 1 {
					return c.err
				}
				return nil
			})
			d, err := cloud.Request(t.Context(), request(t, "web"))
			if croft.KindOf(err) != c.kind || tries != c.tries {
				t.Fatalf("%v after %d tries, want kind %q after %d", err, tries, c.kind, c.tries)
			}
			if err != nil {
				cloud.nothingLeft(t)
			} else if d.Host.ID != cloud.hosts[1] {
				t.Errorf("it is on %s", d.Host.Name)
			}
		})
	}
}

// The explanation why nothing fits is the same in one step as in three.
func TestOneStepExplainsAsThreeDo(t *testing.T) {
	var said []string
	var why [2]*schedule.Explanation
	for i := range why {
		c := newCloud(t, 1)
		if i == 1 {
			c.inOneStep(nil)
		}
		if _, err := c.Request(t.Context(), request(t, "first")); err != nil {
			t.Fatal(err)
		}
		_, err := c.Request(t.Context(), request(t, "web"))
		wantKind(t, err, croft.NoCapacity)
		if !errors.As(err, &why[i]) {
			t.Fatalf("no explanation in %v", err)
		}
		said = append(said, err.Error())
	}
	if said[0] != said[1] || len(why[0].Rows) != len(why[1].Rows) || !strings.Contains(said[0], "schedule web") {
		t.Errorf("three steps say %q, one says %q", said[0], said[1])
	}
}

// If another member joins first, the rule of the group sends a member to another host.
func TestMembersOfOneStepStayApart(t *testing.T) {
	c := newCloud(t, 8, 8, 8).inOneStep(nil)
	var work sync.WaitGroup
	for i := range 3 {
		work.Go(func() {
			if _, err := c.Request(t.Context(), member(t, fmt.Sprintf("web%d", i), croft.Apart)); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	all, _, err := c.store.Members(t.Context(), croft.DefaultProject, "web")
	hosts := map[croft.HostID]bool{}
	for _, m := range all {
		hosts[m.Host] = true
	}
	if err != nil || len(hosts) != 3 {
		t.Errorf("members %+v, %v", all, err)
	}
	_, err = c.Request(t.Context(), member(t, "late", croft.Apart))
	wantKind(t, err, croft.NoCapacity)
}
