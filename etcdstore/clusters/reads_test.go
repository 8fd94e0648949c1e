package clusters_test

import (
	"strings"
	"testing"

	"croft/cluster"
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
