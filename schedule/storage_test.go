package schedule_test

import (
	"errors"
	"strings"
	"testing"

	"croft"
	"croft/schedule"
)

func TestWhereADiskMayLie(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		storage string
		restart croft.Restart
		disks   int
		want    string // part of the error; empty: none
	}{
		{"", "", 0, ""},
		{"", croft.RestartElsewhereImage, 2, ""},
		{"local", croft.RestartElsewhere, 0, ""},
		{"shared", croft.RestartElsewhereDisk, 0, ""},
		{"nfs-1.b", croft.RestartElsewhere, 0, ""},
		{"../x", "", 0, "use local, shared, or the name"},
		{strings.Repeat("x", 64), "", 0, "use local, shared, or the name"},
		{"local", croft.RestartElsewhereDisk, 0, "it is lost with the host"},
		{"shared", croft.RestartElsewhereImage, 0, "it outlives the host"},
		{"shared", "", 1, "they cannot be created together"},
	} {
		err := schedule.CheckStorage(croft.InstanceSettings{Storage: c.storage}, c.restart, c.disks)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("storage %q, restart %q: %v", c.storage, c.restart, err)
		case c.want != "" && (!errors.Is(err, croft.Invalid) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("storage %q, restart %q, %d volumes: got %v, want %q", c.storage, c.restart, c.disks, err, c.want)
		}
	}
}

func TestADiskOutsideOfItsHostIsSeen(t *testing.T) {
	t.Parallel()
	compute, disk := croft.Resources{croft.VCPU: 1, croft.MemoryMB: 256}, croft.Resources{croft.DiskGB: 1}
	for _, c := range []struct {
		name  string
		on    map[croft.HostID]croft.Resources
		roots map[croft.HostID]croft.Summary
		want  bool
	}{
		{"on the host", map[croft.HostID]croft.Resources{"h": {croft.VCPU: 1, croft.DiskGB: 1}}, nil, false},
		{"on a part of the host", map[croft.HostID]croft.Resources{"h": compute, "part": disk},
			map[croft.HostID]croft.Summary{"part": {Root: "h"}}, false},
		{"on a provider that an operator shares",
			map[croft.HostID]croft.Resources{"h": compute, "nfs": disk}, nil, true},
		{"a network that an operator shares", map[croft.HostID]croft.Resources{"h": {croft.VCPU: 1, croft.DiskGB: 1},
			"net": {"IPV4_ADDRESS": 1}}, nil, true},
	} {
		if got := schedule.DiskOutside(croft.Candidate{Allocations: c.on, Summaries: c.roots}); got != c.want {
			t.Errorf("%s: outside is %t, want %t", c.name, got, c.want)
		}
	}
}

func TestAQueryWithoutTheDiskKeepsTheRest(t *testing.T) {
	t.Parallel()
	q, err := schedule.ParseQuery("resources=VCPU:1,MEMORY_MB:256&resources1=DISK_GB:5&required=HW_ARCH_X86_64&" +
		"group_policy=none")
	if err != nil {
		t.Fatal(err)
	}
	left := q.Without(croft.DiskGB)
	if total := left.Total(); total[croft.DiskGB] != 0 || total[croft.VCPU] != 1 || len(left.Groups) != 1 {
		t.Errorf("the query is %s, want the amounts without the disk, in one group", left.Encode())
	}
	if q.Total()[croft.DiskGB] != 5 {
		t.Error("the query itself was changed")
	}
}

func TestTheDiskIsAskedForApartFromTheHost(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"resources=VCPU:1,MEMORY_MB:256,DISK_GB:5&in_tree=11111111-1111-4111-8111-111111111111&" +
			"required=HW_ARCH_X86_64": "" +
			"resources=MEMORY_MB:256,VCPU:1&required=HW_ARCH_X86_64&in_tree=11111111-1111-4111-8111-111111111111&" +
			"resources_DISK_GB=DISK_GB:5",
		"resources=VCPU:1,MEMORY_MB:256,DISK_GB:5&resources_DISK_GB=CUSTOM_GPU:1": "resources=MEMORY_MB:256,VCPU:1&" +
			"resources_DISK_GB=CUSTOM_GPU:1&resources_DISK_GB_=DISK_GB:5&group_policy=none",
		"resources=VCPU:1,MEMORY_MB:256&resources1=DISK_GB:5": "resources=MEMORY_MB:256,VCPU:1&resources1=DISK_GB:5",
	} {
		q, err := schedule.ParseQuery(given)
		if err != nil {
			t.Fatal(err)
		}
		before := q.Encode()
		if got := q.Apart(croft.DiskGB).Encode(); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", given, got, want)
		}
		if q.Encode() != before {
			t.Error("the query itself was changed")
		}
	}
}

func TestARefusalNamesTheVolumeWhoseStorageAHostDoesNotMount(t *testing.T) {
	t.Parallel()
	const nfs1, nfs2 = croft.StorageID("50000000-0000-4000-8000-000000000000"), croft.StorageID(
		"60000000-0000-4000-8000-000000000000")
	q, err := schedule.ParseQuery("VCPU:1,MEMORY_MB:256,DISK_GB:1")
	if err != nil {
		t.Fatal(err)
	}
	host := croft.Host{ID: "h", Name: "host1", Alive: true, Storages: []croft.HostStorage{{ID: nfs1, Name: "nfs1"}}}
	explain := func(v croft.Volume) string {
		return schedule.Explain(schedule.Question{Query: q, Volumes: []croft.Volume{v},
			Hosts: map[croft.HostID]croft.Host{host.ID: host},
			Providers: []croft.Provider{{ID: host.ID, Name: host.Name,
				Inventories: map[croft.ResourceClass]croft.Inventory{
					croft.VCPU: {Total: 4, MaxUnit: 4, MinUnit: 1, StepSize: 1, AllocationRatio: 1}}}}}).Error()
	}
	const refused = "does not mount the shared storage that has volume data"
	for storage, want := range map[croft.StorageID]bool{nfs1: false, nfs2: true} {
		got := explain(croft.Volume{Name: "data", Host: "far", Storage: storage}) // its keeper is another host
		if strings.Contains(got, refused) != want {
			t.Errorf("on %s: %s", storage, got)
		}
	}
	if got := explain(croft.Volume{Name: "data", Host: "far"}); !strings.Contains(got, "which is on another host") {
		t.Errorf("on another host: %s", got)
	}
}
