package crowd

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"croft"
	"croft/etcdstore/etcdtest"
	"croft/hosts/audit"
	"croft/internal/testing/patient"
	"croft/schedule"
)

// caretaker returns a caretaker that sweeps when the test says so, over its own connection.
func (c *cloud) caretaker() *audit.Caretaker {
	store := etcdtest.Open(c.T, c.etcd)
	return &audit.Caretaker{Records: store.Records, Shared: store.Turn, Inventory: c.claims,
		Log: slog.New(slog.DiscardHandler)}
}

func TestWhatHasExpiredIsDestroyedAndNothingElse(t *testing.T) {
	c := newCloud(t)
	c.addHost("host1", 3)
	s := c.schedulers(1)[0]
	gone := c.expiring(s, "gone", -time.Minute)
	later := c.expiring(s, "later", time.Hour)
	stays, err := s.Request(t.Context(), c.request("stays"))
	c.check(err)
	c.check(c.caretaker().Sweep(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), patient.Longest)
	defer cancel()
	c.check(s.Wait(ctx, gone, schedule.Gone, nil))
	c.wantOnly(later.ID, stays.Instance.ID)
}

// expiring requests an instance that expires after left.
func (c *cloud) expiring(s *schedule.Scheduler, name string, left time.Duration) croft.Instance {
	c.Helper()
	d, err := s.Request(c.Context(), c.request(name))
	c.check(err)
	expiring := d.Instance
	expiring.Expires = time.Now().Add(left)
	inst, err := c.store.Instances.Amend(c.Context(), d.Instance, expiring)
	c.check(err)
	return inst
}

// Prolonging an instance and destroying it on expiry exclude each other: a user whose prolonging was acknowledged finds
// the instance alive after any number of sweeps.
func TestWhoeverProlongsInTimeKeepsIt(t *testing.T) {
	c := newCloud(t)
	c.addHost("host1", 2)
	s := c.schedulers(1)[0]
	for i := range soaking(10, 200) {
		inst := c.expiring(s, name("web", i), -time.Second)
		caretaker := c.caretaker()
		swept := make(chan error)
		go func() { swept <- caretaker.Sweep(c.Context()) }()
		_, err := s.Keep(t.Context(), inst.Project, string(inst.ID), time.Hour, nil)
		c.check(<-swept)
		c.check(caretaker.Sweep(t.Context()))
		st, found := c.store.Instances.Find(t.Context(), inst.Project, string(inst.ID))
		switch {
		case err == nil && (found != nil || st.Instance.State != croft.StateScheduled):
			t.Errorf("it was kept, and is %s, %v", st.Instance.State, found)
		case err != nil && !errors.Is(err, croft.Conflict) && !errors.Is(err, croft.NotFound):
			t.Error(err)
		case err != nil && found == nil && st.Instance.State != croft.StateDestroying:
			t.Errorf("it could not be kept, and is %s", st.Instance.State)
		}
		if err := destroy(t.Context(), s, inst); !errors.Is(err, croft.NotFound) {
			c.check(err) // unless it is gone already
		}
	}
}
