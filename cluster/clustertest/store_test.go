package clustertest_test

import (
	"testing"

	"go.uber.org/goleak"

	"croft"
	"croft/cluster"
	"croft/cluster/clustertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheStoreInMemoryKeepsTheContracts(t *testing.T) {
	open := func(*testing.T) clustertest.Stores { return clustertest.NewStore() }
	clustertest.RunRecords(t, open)
	clustertest.RunCatalogue(t, open)
	clustertest.RunAccounts(t, open)
}

func TestAStoreInMemoryCanFail(t *testing.T) {
	s, ctx := clustertest.NewStore(), t.Context()
	s.Limit("dev", 1)
	s.After = func(string) error { return croft.Errorf(croft.Unavailable, "lost") }
	c := clustertest.NewCluster("one")
	if _, err := s.Create(ctx, c, 0); croft.KindOf(err) != croft.Unavailable {
		t.Errorf("the answer is not lost: %v", err)
	}
	s.After = nil
	if _, err := s.Get(ctx, c.ID); err != nil {
		t.Errorf("what was done is not: %v", err)
	}
	latest, _ := s.Latest(ctx, c.Project, c.User, c.Appliance)
	if _, err := s.Create(ctx, clustertest.NewCluster("two"), latest); croft.KindOf(err) != croft.OverQuota {
		t.Errorf("there is no limit: %v", err)
	}
	s.Before = func(op string) error { return croft.Errorf(croft.Unavailable, "%s: down", op) }
	if err := s.Note(ctx, c, cluster.Event{}); croft.KindOf(err) != croft.Unavailable {
		t.Errorf("it is not down: %v", err)
	}
	s.Before = nil
	h, err := s.Hold(ctx, c.ID)
	if err != nil {
		t.Fatal(err)
	}
	s.Expire(c.ID)
	if got, err := s.Get(ctx, c.ID); err != nil {
		t.Error(err)
	} else if _, err := s.Update(ctx, got, h); croft.KindOf(err) != croft.Conflict {
		t.Errorf("its hold goes on: %v", err)
	}
}
