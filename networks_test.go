package croft_test

import (
	"errors"
	"strings"
	"testing"

	"croft"
)

func TestNetworkNamesComeBackFromTheirTraits(t *testing.T) {
	for _, name := range []string{"lab", "lab-1", "10g"} {
		if err := croft.CheckNetworkName(name); err != nil {
			t.Error(err)
		}
		if got, ok := croft.NetworkOf(croft.NetworkTrait(name)); !ok || got != name {
			t.Errorf("%s came back as %q, %v", name, got, ok)
		}
	}
	if trait := croft.NetworkTrait("lab-1"); trait != "CUSTOM_CROFT_NET_LAB_1" {
		t.Errorf("the trait is %s", trait)
	}
	if name, ok := croft.NetworkOf("CUSTOM_SSD"); ok {
		t.Errorf("CUSTOM_SSD offers the network %q", name)
	}
	for _, name := range []string{"", "Lab", "lab_1", "lab 1", "läb", strings.Repeat("x", 64)} {
		if err := croft.CheckNetworkName(name); !errors.Is(err, croft.Invalid) {
			t.Errorf("%q: got %v, want Invalid", name, err)
		}
	}
}

func TestNetworksAreOpenToTheProjectsThatTheirHostNames(t *testing.T) {
	h := croft.Host{Networks: map[string][]croft.Project{
		"lab": {"red", "blue"}, "closed": {}, "public": {croft.EveryProject},
		"plain": croft.NetworkProjects(nil),
	}}
	for _, c := range []struct {
		network string
		project croft.Project
		want    bool
	}{
		{"default", "red", true}, {"default", "default", true},
		{"lab", "red", true}, {"lab", "blue", true}, {"lab", "green", false}, {"lab", "default", false},
		{"closed", "red", false}, {"closed", "default", false},
		{"public", "green", true}, {"public", "default", true},
		{"plain", "default", true}, {"plain", "red", false},
		{"of an older agent", "default", true}, {"of an older agent", "red", false},
	} {
		if got := h.AdmitsTo(c.network, c.project); got != c.want {
			t.Errorf("project %s on network %s: %v, want %v", c.project, c.network, got, c.want)
		}
	}
}
