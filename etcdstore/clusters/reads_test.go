package clusters_test

import (
	"croft"
	"strings"
	"testing"
	"time"

	"croft/cluster"
	"croft/cluster/clustertest"
	"croft/etcdstore/etcdtest"
)

// A program of an earlier version stores and removes implementations without their keys in the index.
func TestImplementationsOfAnEarlierVersionAreFound(t *testing.T) {
	t.Parallel()
	server := etcdtest.Server(t)
	s := etcdtest.Open(t, server)
	etcdtest.Must(s.Clusters.PutSite(t.Context(), cluster.Site{Name: "local", Type: "local"}))(t)
	for _, name := range []string{"lab", "shop"} {
		etcdtest.Must(s.Clusters.PutAppliance(t.Context(), cluster.Appliance{Name: name}))(t)
	}
	add := func(appliance string) cluster.Implementation {
		t.Helper()
		return etcdtest.Must(s.Clusters.AddImplementation(t.Context(), cluster.Implementation{
			ID: cluster.NewImplementationID(), Appliance: appliance, Site: "local",
			Template: strings.Repeat("x", 100)}))(t)
	}
	lab, shop := add("lab"), add("shop")
	forget := func(key string) {
		t.Helper()
		if err := etcdtest.Delete(t.Context(), server.Endpoint(), s.Partition(), key); err != nil {
			t.Fatal(err)
		}
	}
	forget("clusters/implemented/lab/" + string(lab.ID)) // as if the earlier version had stored it
	forget("clusters/implementations/" + string(shop.ID))
	late := add("lab")
	for appliance, want := range map[string]int{"lab": 2, "shop": 0, "": 2} {
		all := etcdtest.Must(s.Clusters.Implementations(t.Context(), appliance))(t)
		if len(all) != want {
			t.Errorf("%q has %d implementations, want %d", appliance, len(all), want)
		}
	}
	for _, i := range []cluster.Implementation{lab, late} {
		if err := s.Clusters.RemoveImplementation(t.Context(), i.ID); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Clusters.RemoveAppliance(t.Context(), "lab"); err != nil {
		t.Error(err)
	}
}

// TestTimesAreStoredInNanoseconds: clients get seconds, and programs of earlier versions store nanoseconds.
func TestTimesAreStoredInNanoseconds(t *testing.T) {
	t.Parallel()
	server := etcdtest.Server(t)
	s := etcdtest.Open(t, server)
	site := cluster.Site{Name: "new", Type: cluster.Sim, BuildTimeout: cluster.Seconds(90 * time.Second)}
	etcdtest.Must(s.Clusters.PutSite(t.Context(), site))(t)
	c := clustertest.NewCluster("one")
	c.KeepIdle = cluster.Seconds(time.Hour)
	c = etcdtest.Must(s.Clusters.Create(t.Context(), c, 0))(t)
	for key, text := range map[string]string{
		"clusters/sites/old":   `{"name":"old","type":"sim","build_timeout":90000000000}`,
		"clusters/records/old": `{"id":"old","keep_idle":3600000000000}`,
	} {
		if err := etcdtest.Put(t.Context(), server.Endpoint(), s.Partition(), key, text); err != nil {
			t.Fatal(err)
		}
	}
	sites := etcdtest.Must(s.Clusters.Sites(t.Context()))(t)
	if len(sites) != 2 || sites[0].BuildTimeout != site.BuildTimeout || sites[1].BuildTimeout != site.BuildTimeout {
		t.Errorf("the sites are %+v", sites)
	}
	for _, id := range []croft.ClusterID{c.ID, "old"} {
		if found := etcdtest.Must(s.Clusters.Get(t.Context(), id))(t); found.KeepIdle != c.KeepIdle {
			t.Errorf("cluster %s is kept for %d", id, found.KeepIdle)
		}
	}
}
