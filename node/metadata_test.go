package node

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"croft"
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
