package node

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"croft"
	"croft/compute"
	"croft/mdserver"
	"croft/node/settings"
)

func TestVendorDataThatGuestsWouldStumbleOver(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct{ text, want string }{
		"good.yaml": {"#cloud-config\ntimezone: UTC\n", ""},
		"bad.yaml":  {"#cloud-config\ntimezone: [\n", "is not YAML"},
		"gone.yaml": {"", "no such file"},
		"packed.gz": {"\x1f\x8b", "does not unpack"},
	} {
		file := filepath.Join(dir, name)
		if c.text != "" {
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		h := &host{settings: settings.Defaults()}
		h.settings.Metadata.VendorData = file
		seeds, err := h.seeds()
		if c.want == "" {
			if err != nil || string(seeds.(mdserver.Seeds).Vendor) != c.text {
				t.Errorf("%s gives %+v, %v", name, seeds, err)
			}
		} else if !errors.Is(err, croft.Invalid) || !strings.Contains(err.Error(), "metadata.vendor_data: ") ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s gives %v, want %q", name, err, c.want)
		}
	}
}

// An agent that left the metadata server to another one on its machine gives disks to its guests, also after a restart
// at which the address is free.
func TestAnAgentThatLeftTheMetadataServerToAnotherKeepsToThat(t *testing.T) {
	dir := t.TempDir()
	begin := func(bridge string) *host {
		return &host{settings: settings.Defaults(), bridge: bridge, dir: &compute.StateDir{Path: dir},
			log: slog.New(slog.DiscardHandler)}
	}
	source := func(h *host) croft.Metadata {
		t.Helper()
		s, err := h.seeds()
		if err != nil {
			t.Fatal(err)
		}
		source, err := s.Source(croft.Order{})
		if err != nil {
			t.Fatal(err)
		}
		return source
	}
	h := begin("br0")
	if h.leftMetadata() || source(h) != croft.MetadataServer {
		t.Fatal("it left the server before it found another")
	}
	if err := h.leaveMetadata(mdserver.ErrSibling); err != nil {
		t.Fatal(err)
	}
	if source(h) != croft.MetadataNoCloud {
		t.Errorf("its guests get their metadata from %s", source(h))
	}
	if !begin("br0").leftMetadata() {
		t.Error("after a restart it would take the address")
	}
	if begin("br1").leftMetadata() {
		t.Error("it leaves the server of another bridge too")
	}
}
