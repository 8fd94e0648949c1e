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

func TestOpenPortsAreReadAsTheyAreWritten(t *testing.T) {
	for _, text := range []string{"tcp/80", "udp/53", "tcp/65535"} {
		if p, err := croft.ParseOpenPort(text); err != nil || p.String() != text {
			t.Errorf("%s is read as %s, %v", text, p, err)
		}
	}
	for _, text := range []string{"", "80", "tcp", "tcp/", "tcp/0", "tcp/65536", "tcp/-1", "tcp/080", "icmp/8",
		"TCP/80", "tcp/80/90", "tcp/80-90", " tcp/80"} {
		if p, err := croft.ParseOpenPort(text); !errors.Is(err, croft.Invalid) {
			t.Errorf("%q is read as %s, %v", text, p, err)
		}
	}
	var many []string
	for port := range croft.MaxOpenPorts + 1 {
		many = append(many, croft.OpenPort{Protocol: "tcp", Port: uint16(port + 1)}.String())
	}
	for what, all := range map[string][]string{"twice": {"tcp/80", "tcp/80"}, "too many": many, "bad": {"tcp/x"}} {
		if err := croft.CheckOpenPorts(all); !errors.Is(err, croft.Invalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := croft.CheckOpenPorts(many[1:]); err != nil {
		t.Error(err)
	}
}
