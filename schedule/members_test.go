package schedule_test

import (
	"context"
	"strings"
	"testing"

	"croft"
	"croft/schedule"
)

const owner croft.ClusterID = "9a1f6a80-0f6c-4a1c-9f0f-0c6de2a4c111"

// clusterMember creates an instance that is part of a cluster.
func clusterMember(t *testing.T, c *cloud, name string) croft.Instance {
	t.Helper()
	r := request(t, name)
	r.Cluster = owner
	d, err := c.Request(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if d.Instance.Cluster != owner {
		t.Fatalf("its record names cluster %q", d.Instance.Cluster)
	}
	return d.Instance
}

// A request is given up only if its record is unchanged: once its scheduler has written the order, the instance is not
// touched.
func TestARequestIsGivenUpOnlyAsItWasRead(t *testing.T) {
	c := newCloud(t, 1)
	early, err := c.Records.Create(t.Context(), croft.Instance{ID: croft.NewInstanceID(), Name: "web",
		Project: croft.DefaultProject, State: croft.StateScheduling, Cluster: owner})
	if err != nil {
		t.Fatal(err)
	}
	wantKind(t, c.Scheduler.ForCluster("another").GiveUp(t.Context(), early), croft.Conflict)
	ours := c.Scheduler.ForCluster(owner)
	changed := early
	changed.Revision--
	wantKind(t, ours.GiveUp(t.Context(), changed), croft.Conflict)
	if _, err := c.View.Find(t.Context(), croft.DefaultProject, "web"); err != nil {
		t.Fatalf("what was changed meanwhile: %v", err)
	}
	if err := ours.GiveUp(t.Context(), early); err != nil {
		t.Fatal(err)
	}
	member := clusterMember(t, c, "db")
	wantKind(t, ours.GiveUp(t.Context(), member), croft.Conflict)
}

func TestMembersOfClustersAreChangedByTheirClusterAlone(t *testing.T) {
	type change func(*schedule.Scheduler, context.Context, croft.Project, string) error
	for name, do := range map[string]change{
		"stop": func(s *schedule.Scheduler, ctx context.Context, p croft.Project, n string) error {
			_, err := s.Stop(ctx, p, n)
			return err
		},
		"reboot": func(s *schedule.Scheduler, ctx context.Context, p croft.Project, n string) error {
			_, err := s.Reboot(ctx, p, n)
			return err
		},
		"rebuild": func(s *schedule.Scheduler, ctx context.Context, p croft.Project, n string) error {
			_, err := s.Rebuild(ctx, p, n)
			return err
		},
		"keep": func(s *schedule.Scheduler, ctx context.Context, p croft.Project, n string) error {
			_, err := s.Keep(ctx, p, n, 3600e9, nil)
			return err
		},
		"destroy": func(s *schedule.Scheduler, ctx context.Context, p croft.Project, n string) error {
			_, err := s.Destroy(ctx, p, n, false)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCloud(t, 1)
			inst := clusterMember(t, c, "web")
			for _, s := range []*schedule.Scheduler{c.Scheduler, c.Scheduler.ForCluster("another")} {
				err := do(s, t.Context(), croft.DefaultProject, "web")
				wantKind(t, err, croft.Conflict)
				if err != nil && !strings.Contains(err.Error(), "part of cluster "+string(owner)) {
					t.Errorf("the error is %v", err)
				}
			}
			if _, generation := c.wanted(t, inst); generation != 1 {
				t.Errorf("the order has generation %d: it was changed", generation)
			}
			if err := do(c.Scheduler.ForCluster(owner), t.Context(), croft.DefaultProject, "web"); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAMemberIsDestroyedByForce(t *testing.T) {
	c := newCloud(t, 1)
	inst := clusterMember(t, c, "web")
	if _, err := c.Destroy(t.Context(), croft.DefaultProject, "web", true); err != nil {
		t.Fatal(err)
	}
	if want, _ := c.wanted(t, inst); want != croft.WantGone {
		t.Errorf("it is to be %s", want)
	}
}

func TestAClaimOfAClusterIsUsedAndReleasedByItAlone(t *testing.T) {
	c := newCloud(t, 1)
	r := request(t, "web")
	r.Cluster, r.Hold = owner, 3600e9
	if _, err := c.Request(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	_, err := c.Use(t.Context(), croft.DefaultProject, "web", schedule.Use{})
	wantKind(t, err, croft.Conflict)
	_, err = c.ReleaseHold(t.Context(), croft.DefaultProject, "web")
	wantKind(t, err, croft.Conflict)
	inst, err := c.Scheduler.ForCluster(owner).Use(t.Context(), croft.DefaultProject, "web",
		schedule.Use{ClusterKey: "key"})
	if err != nil || inst.Spec.ClusterKey != "key" || inst.Cluster != owner {
		t.Errorf("got %+v, %v", inst, err)
	}
}

func TestPeersAreToldOnce(t *testing.T) {
	c := newCloud(t, 1)
	inst := clusterMember(t, c, "web")
	peers := []croft.Peer{{Name: "web", Address: "192.0.2.1"}, {Name: "other", Address: "192.0.2.2"}}
	wantKind(t, c.Introduce(t.Context(), inst.Project, inst.ID, peers), croft.Conflict)
	for range 2 {
		if err := c.Scheduler.ForCluster(owner).Introduce(t.Context(), inst.Project, inst.ID, peers); err != nil {
			t.Fatal(err)
		}
	}
	o, err := c.store.Order(t.Context(), c.hosts[0], inst.ID)
	if err != nil || o.Generation != 2 || len(o.Spec.Peers) != 2 || o.Want != croft.WantRunning {
		t.Errorf("the order is %+v, %v", o, err)
	}
	r := request(t, "web")
	r.ID, r.Cluster = inst.ID, owner
	st, err := c.store.Find(t.Context(), croft.DefaultProject, "web")
	if err != nil || !r.Wants(st.Instance) {
		t.Errorf("the request does not know its instance any more: %v", err)
	}
	if r.Cluster = ""; r.Wants(st.Instance) {
		t.Error("a request without the cluster takes it for its own")
	}
}
