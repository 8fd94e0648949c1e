package node

import (
	"strings"
	"testing"

	"croft"
	"croft/compute/hypervisor/libvirt"
	"croft/node/settings"
)

// TestBridgesThatAreNotThere: the start fails, and names the setting with the missing bridge.
func TestBridgesThatAreNotThere(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*settings.Settings)
		kind   croft.Kind
		want   string
	}{
		"the usual one": {func(s *settings.Settings) { s.Network.Bridge = "br-none" }, croft.NotFound,
			`network.bridge: this host has no bridge "br-none": make it`},
		"one that guests name": {func(s *settings.Settings) {
			s.Networks["lab"] = settings.Network{Bridge: "br-none"}
		}, croft.NotFound, `networks.lab: this host has no bridge "br-none"`},
		"a network card is no bridge": {func(s *settings.Settings) { s.Network.Bridge = "lo" }, croft.Invalid,
			`network.bridge: "lo" is a network interface of the type device and no bridge`},
	} {
		t.Run(name, func(t *testing.T) {
			h := &host{settings: settings.Defaults()}
			c.change(&h.settings)
			hv, err := libvirt.New(libvirt.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer hv.Close()
			err = h.startNetworks(t.Context(), hv)
			if croft.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}
