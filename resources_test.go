package croft_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"croft"
)

func TestResourcesString(t *testing.T) {
	for _, c := range []struct {
		name string
		in   croft.Resources
		want string
	}{
		{"nothing", nil, ""},
		{"one class", croft.Resources{croft.VCPU: 2}, "VCPU:2"},
		{"classes in order", croft.Resources{croft.VCPU: 1, croft.MemoryMB: 256, croft.DiskGB: 1, "CUSTOM_FPGA": 3},
			"CUSTOM_FPGA:3,DISK_GB:1,MEMORY_MB:256,VCPU:1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.in.String(); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestInventoryCapacity(t *testing.T) {
	for _, c := range []struct {
		name string
		in   croft.Inventory
		want int64
	}{
		{"all of it", croft.Inventory{Total: 8, AllocationRatio: 1}, 8},
		{"less what is reserved", croft.Inventory{Total: 8, Reserved: 3, AllocationRatio: 1}, 5},
		{"times the ratio", croft.Inventory{Total: 2, AllocationRatio: 16}, 32},
		{"the reserve is taken off before the ratio", croft.Inventory{Total: 10, Reserved: 2, AllocationRatio: 1.5},
			12},
		{"fractions are cut off", croft.Inventory{Total: 3, AllocationRatio: 0.5}, 1},
		{"more than any number", croft.Inventory{Total: math.MaxInt32, AllocationRatio: 3e38}, 1 << 50},
		{"less than nothing", croft.Inventory{Total: 1, AllocationRatio: -3e38}, 0},
		{"a drained host offers nothing", croft.Inventory{Total: 64, Reserved: 64, AllocationRatio: 16}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.in.Capacity(); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

// People and scripts read the JSON of these types (-o json).
func TestWhatIsNeverPrinted(t *testing.T) {
	for _, c := range []struct {
		name, secret string
		in           any
	}{
		{"the token of a host", "t0ken", croft.Host{ID: "h", Name: "n", Token: "t0ken"}},
		{"the revision of a record", "4711", croft.Instance{ID: "i", Revision: 4711}},
		{"the revision of an order", "4711", croft.Order{Want: croft.WantGone, Revision: 4711}},
	} {
		t.Run(c.name, func(t *testing.T) {
			text, err := json.Marshal(c.in)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), c.secret) {
				t.Errorf("%s has %s in it", text, c.secret)
			}
		})
	}
}
