package placementclient

import (
	"maps"
	"slices"
	"testing"

	"croft"
)

func TestAReleaseOnOneHostKeepsTheOthers(t *testing.T) {
	type hosts = map[croft.HostID]croft.Resources
	guest, disk := croft.Resources{croft.VCPU: 1, croft.DiskGB: 1}, croft.Resources{croft.DiskGB: 1}
	for what, c := range map[string]struct {
		claim hosts
		left  []croft.HostID
	}{
		"an instance that moved":     {hosts{"a": guest, "b": guest}, []croft.HostID{"b"}},
		"a volume that moved":        {hosts{"a": disk, "b": disk}, []croft.HostID{"b"}},
		"an instance on shared disk": {hosts{"a": guest, "shared": disk}, nil},
		"a volume on one host alone": {hosts{"a": disk}, nil},
	} {
		left := rest(croft.Claim{Allocations: c.claim}, []croft.HostID{"a"})
		if got := slices.Sorted(maps.Keys(left)); !slices.Equal(got, c.left) {
			t.Errorf("%s: %v, want %v", what, got, c.left)
		}
	}
}
