package clustertest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"croft"
	"croft/cluster"
)

func testRename(t *testing.T, s Stores) {
	ctx, first := t.Context(), create(t, s, NewCluster("one"))
	second := create(t, s, NewCluster("two"))
	taken := second
	taken.Name = "one"
	_, err := s.Update(ctx, taken, nil)
	wantTaken(t, err, "name", first.ID)
	second.Name = "three"
	update(t, s, second, nil)
	if got, err := s.Named(ctx, "dev", "three"); err != nil || got.ID != second.ID {
		t.Errorf("by its new name: %v, %v", got.ID, err)
	}
	_, err = s.Named(ctx, "dev", "two")
	want(t, err, croft.NotFound)
	create(t, s, NewCluster("two")) // the name is free
}

func testNamed(t *testing.T, s Stores) {
	ctx, c := t.Context(), create(t, s, NewCluster("one"))
	for what, change := range map[string]func(*cluster.Cluster){
		"site":           func(c *cluster.Cluster) { c.Site = "sim" },
		"credential":     func(c *cluster.Cluster) { c.Credential = cluster.NewCredentialID() },
		"implementation": func(c *cluster.Cluster) { c.Implementation = cluster.NewImplementationID() },
	} {
		chosen := c
		change(&chosen)
		_, err := s.Update(ctx, chosen, nil)
		if want(t, err, croft.Conflict); err != nil && !strings.Contains(err.Error(), what) {
			t.Errorf("without a %s: %v", what, err)
		}
	}
	i, k := Furnish(t, s)
	c.Site, c.Credential, c.Implementation, c.State = "sim", k.ID, i.ID, cluster.Building
	c = update(t, s, c, nil)
	want(t, s.RemoveCredential(ctx, k.ID), croft.Conflict)
	want(t, s.RemoveImplementation(ctx, i.ID), croft.Conflict)
	want(t, s.RemoveSite(ctx, "sim"), croft.Conflict)
	c.Site, c.Credential, c.Implementation, c.State = "", "", "", cluster.Scheduling // the next attempt
	c = update(t, s, c, nil)
	if err := errors.Join(s.RemoveCredential(ctx, k.ID), s.RemoveImplementation(ctx, i.ID)); err != nil {
		t.Error(err)
	}
	c.Credential = k.ID
	_, err := s.Update(ctx, c, nil)
	want(t, err, croft.Conflict)
}

func testSiteRoom(t *testing.T, s Stores) {
	ctx := t.Context()
	Furnish(t, s)
	site, err := s.PutSite(ctx, cluster.Site{Name: "small", Type: cluster.Sim, Enabled: true, MaxClusters: 3})
	if err != nil {
		t.Fatal(err)
	}
	all := make([]cluster.Cluster, 12)
	for i := range all {
		all[i] = create(t, s, NewCluster(fmt.Sprint("c", i)))
	}
	var work sync.WaitGroup
	errs := make([]error, len(all))
	for i := range all {
		work.Go(func() {
			holder, err := s.Hold(ctx, all[i].ID)
			if err != nil {
				errs[i] = err
				return
			}
			chosen := all[i]
			chosen.Site = "small"
			if chosen, errs[i] = s.Update(ctx, chosen, holder); errs[i] == nil {
				all[i] = chosen
			}
		})
	}
	work.Wait()
	var there []cluster.Cluster
	var refused cluster.Cluster
	for i, err := range errs {
		if err == nil {
			there = append(there, all[i])
			continue
		}
		refused = all[i]
		if want(t, err, croft.Conflict); !strings.Contains(err.Error(), "site small has 3 clusters, and may have 3") {
			t.Errorf("refused with %q", err)
		}
	}
	if len(there) != 3 {
		t.Fatalf("the site has %d clusters, and may have 3", len(there))
	}
	there[0].Step = "it stays where it is"
	there[0] = update(t, s, there[0], nil)
	there[0].State = cluster.Deleted
	update(t, s, there[0], nil)
	refused.Site = "small"
	refused = update(t, s, refused, nil)
	there[1].Site = ""
	there[1] = update(t, s, there[1], nil)
	site.MaxClusters = 0
	if _, err = s.PutSite(ctx, site); err != nil {
		t.Fatal(err)
	}
	for i := range all {
		if c, err := s.Get(ctx, all[i].ID); err != nil || c.State == cluster.Deleted {
			continue
		} else if c.Site == "" {
			c.Site = "small"
			update(t, s, c, nil)
		}
	}
}
