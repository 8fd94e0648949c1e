package mdserver

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"croft"
)

// If two networks have a router, the first has the preferred default route, and the metadata server is reached on its
// own network, wherever that is in the list.
func TestNetworkDataSaysWhichRouteWins(t *testing.T) {
	for _, c := range []struct {
		networks []string
		home     int
	}{{[]string{"default", "lab"}, 0}, {[]string{"lab", "default"}, 1}, {[]string{"lab", "office"}, -1}} {
		o := croft.Order{Instance: "6ba7b810-9dad-41d1-80b4-00c04fd430c8", Spec: croft.Spec{
			InstanceSettings: croft.InstanceSettings{Networks: c.networks}}}
		g := FromOrder(o)
		g.MACs, g.Home, g.Gateway = MACs(o, 1), Home(o), netip.MustParseAddr("192.168.122.1")
		if g.Home != c.home {
			t.Errorf("%v: its home is interface %d", c.networks, g.Home)
		}
		config := seedNetwork(g)
		var data networkDataJSON
		if err := json.Unmarshal(networkData(g), &data); err != nil {
			t.Fatal(err)
		}
		for i, network := range data.Networks {
			nic := config.Ethernets[fmt.Sprintf("nic%d", i)]
			if metric := 100 * (i + 1); network.Metric != metric || nic.Overrides["route-metric"] != metric {
				t.Errorf("%v: interface %d has the metrics %d and %v", c.networks, i, network.Metric, nic.Overrides)
			}
			var routes []routeJSON
			var seeded []seedRouteYAML
			if i == c.home {
				routes = []routeJSON{{"169.254.169.254", "255.255.255.255", "192.168.122.1", 100 * (i + 1)}}
				seeded = []seedRouteYAML{{"169.254.169.254/32", "192.168.122.1", 100 * (i + 1)}}
			}
			if !slices.Equal(network.Routes, routes) || !slices.Equal(nic.Routes, seeded) {
				t.Errorf("%v: interface %d has the routes %v and %v", c.networks, i, network.Routes, nic.Routes)
			}
		}
	}
}

// Readers that check network_data.json by Nova's schema (doc/api_schemas/network_data.json) accept it.
func TestNetworkDataHasAllThatNovasSchemaRequires(t *testing.T) {
	o := croft.Order{Instance: "6ba7b810-9dad-41d1-80b4-00c04fd430c8",
		Spec: croft.Spec{InstanceSettings: croft.InstanceSettings{Networks: []string{"lab", "default"}}}}
	g := FromOrder(o)
	g.MACs, g.Home, g.Gateway = MACs(o, 1), Home(o), netip.MustParseAddr("192.168.122.1")
	var data map[string][]map[string]any
	if err := json.Unmarshal(networkData(g), &data); err != nil {
		t.Fatal(err)
	}
	check := func(what string, all []map[string]any, required ...string) {
		t.Helper()
		if len(all) == 0 {
			t.Errorf("there are no %s", what)
		}
		for _, one := range all {
			for _, key := range required {
				if text, _ := one[key].(string); text == "" {
					t.Errorf("%s: %v lacks %s", what, one, key)
				}
			}
		}
	}
	check("links", data["links"], "ethernet_mac_address", "id", "type")
	check("networks", data["networks"], "id", "link", "network_id", "type")
	routes, _ := data["networks"][1]["routes"].([]any)
	route, _ := routes[0].(map[string]any)
	check("routes", []map[string]any{route}, "gateway", "netmask", "network")
	if services, has := data["services"]; !has || services == nil {
		t.Error("there are no services")
	}
}
