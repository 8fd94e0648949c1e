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
