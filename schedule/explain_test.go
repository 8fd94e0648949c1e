package schedule

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"croft"
)

// provider offers 4 cores, 4096 MiB and 100 GiB, modified by the arguments.
func provider(name string, change ...func(*croft.Provider)) croft.Provider {
	inv := func(total int64) croft.Inventory {
		return croft.Inventory{Total: total, MinUnit: 1, MaxUnit: total, StepSize: 1, AllocationRatio: 1}
	}
	p := croft.Provider{
		ID: croft.HostID(name), Name: name, Used: croft.Resources{},
		Inventories: map[croft.ResourceClass]croft.Inventory{croft.VCPU: inv(4), croft.MemoryMB: inv(4096),
			croft.DiskGB: inv(100)},
		Traits:     []croft.Trait{"HW_CPU_X86_AVX2"},
		Aggregates: []string{aggregate1},
	}
	for _, f := range change {
		f(&p)
	}
	return p
}

func using(class croft.ResourceClass, amount int64) func(*croft.Provider) {
	return func(p *croft.Provider) { p.Used[class] = amount }
}

func inventory(class croft.ResourceClass, f func(*croft.Inventory)) func(*croft.Provider) {
	return func(p *croft.Provider) {
		inv := p.Inventories[class]
		f(&inv)
		p.Inventories[class] = inv
	}
}

func TestExplain(t *testing.T) {
	const query = "resources=VCPU:1,MEMORY_MB:4096,DISK_GB:10"
	up := func(p croft.Provider) croft.Host { return croft.Host{ID: p.ID, Alive: true} }
	for _, c := range []struct {
		name     string
		query    string
		provider croft.Provider
		host     func(croft.Provider) croft.Host
		want     string
	}{
		{"memory is short", query, provider("h", using(croft.MemoryMB, 214)), up, "214 MB short of MEMORY_MB 4096"},
		{"reserved memory is not offered", query, provider("h",
			inventory(croft.MemoryMB, func(i *croft.Inventory) { i.Reserved = 96 })), up,
			"96 MB short of MEMORY_MB 4096"},
		{"two things are short", query, provider("h", using(croft.MemoryMB, 96), using(croft.VCPU, 4)), up,
			"96 MB short of MEMORY_MB 4096, 1 short of VCPU 1"},
		{"a class is not offered", query + ",CUSTOM_FPGA:1", provider("h"), up, "offers no CUSTOM_FPGA"},
		{"more than one instance gets", query, provider("h", inventory(croft.MemoryMB, func(i *croft.Inventory) {
			i.MaxUnit = 2048
		})), up, "gives one instance at most 2048 of MEMORY_MB, 2048 MB short of 4096"},
		{"less than an instance gets", query, provider("h", inventory(croft.DiskGB, func(i *croft.Inventory) {
			i.MinUnit = 20
		})), up, "gives at least 20 of DISK_GB, and 10 is asked for"},
		{"not in its steps", query, provider("h", inventory(croft.DiskGB, func(i *croft.Inventory) { i.StepSize = 4 })),
			up, "gives DISK_GB in steps of 4, and 10 is asked for"},
		{"in its steps, and short", query, provider("h", using(croft.DiskGB, 95),
			inventory(croft.DiskGB, func(i *croft.Inventory) { i.StepSize = 5 })), up, "5 GB short of DISK_GB 10"},
		{"the host has no firmware for the machine", query + "&root_required=COMPUTE_FIRMWARE_UEFI", provider("h"), up,
			"has no UEFI firmware (the package ovmf, and then a restart of its agent)"},
		{"the root lacks a trait", query + "&root_required=CUSTOM_FAST", provider("h"), up, "lacks CUSTOM_FAST"},
		{"the root has what it needs", query + "&root_required=HW_CPU_X86_AVX2,!CUSTOM_SLOW", provider("h"), up,
			"has room by now: ask again"},
		{"two groups and room for both", query + "&resources1=VCPU:1&resources2=VCPU:1&group_policy=none",
			provider("h"),
			up, "has room by now: ask again"},
		{"one group and room for it", query + "&resources1=VCPU:1", provider("h"), up, "has room by now: ask again"},
		{"one of two groups that stay apart asks for nothing",
			query + "&resources_A=VCPU:1&required_B=HW_CPU_X86_AVX2&same_subtree=_A,_B&group_policy=isolate",
			provider("h"), up, "has room by now: ask again"},
		{"a trait is missing", query + "&required=HW_CPU_X86_SSE", provider("h"), up, "lacks HW_CPU_X86_SSE"},
		{"all of a choice are missing", query + "&required=in:CUSTOM_A,CUSTOM_B", provider("h"), up,
			"lacks CUSTOM_A or CUSTOM_B"},
		{"a forbidden trait", query + "&required=!HW_CPU_X86_AVX2", provider("h"), up,
			"has HW_CPU_X86_AVX2, which is forbidden"},
		{"another aggregate", query + "&member_of=" + aggregate2, provider("h"), up,
			"is not in aggregate " + aggregate2},
		{"an excluded aggregate", query + "&member_of=!" + aggregate1, provider("h"), up,
			"is in aggregate " + aggregate1 + ", which is excluded"},
		{"another host is named", query + "&in_tree=" + aggregate1, provider("h"), up,
			"is not the host " + aggregate1 + " that in_tree names"},
		{"the agent is not running", query, provider("h"),
			func(p croft.Provider) croft.Host { return croft.Host{ID: p.ID} }, "its agent is not running"},
		{"the host is drained", query, provider("h"), func(p croft.Provider) croft.Host {
			return croft.Host{ID: p.ID, Alive: true, Drained: true}
		}, "it is drained"},
		{"the host is somebody else's", query, provider("h"), func(croft.Provider) croft.Host {
			return croft.Host{ID: "other"}
		}, "no agent of croft has registered it"},
		{
			"the agent is not running and has withdrawn all", query,
			provider("h", inventory(croft.MemoryMB, func(i *croft.Inventory) { i.Reserved = i.Total })),
			func(p croft.Provider) croft.Host { return croft.Host{ID: p.ID} }, "its agent is not running",
		},
		{
			"the agent is not running and the host is too small", query,
			provider("h", inventory(croft.MemoryMB, func(i *croft.Inventory) { i.MaxUnit = 96 })),
			func(p croft.Provider) croft.Host { return croft.Host{ID: p.ID} },
			"gives one instance at most 96 of MEMORY_MB, 4000 MB short of 4096, its agent is not running",
		},
		{"it would fit now", query, provider("h"), up, "has room by now: ask again"},
	} {
		t.Run(c.name, func(t *testing.T) {
			q, err := ParseQuery(c.query)
			if err != nil {
				t.Fatal(err)
			}
			host := c.host(c.provider)
			got := Explain(Question{Query: q, Providers: []croft.Provider{c.provider},
				Hosts: map[croft.HostID]croft.Host{host.ID: host}})
			if len(got.Rows) != 1 || strings.Join(got.Rows[0].Missing, ", ") != c.want {
				t.Errorf("got %+v, want %q", got.Rows, c.want)
			}
		})
	}
}

func TestExplainGroupsAndSorts(t *testing.T) {
	q, err := ParseQuery("resources=VCPU:1,MEMORY_MB:4096,DISK_GB:10&required=HW_CPU_X86_AVX2")
	if err != nil {
		t.Fatal(err)
	}
	plain := func(p *croft.Provider) { p.Traits = nil }
	providers := []croft.Provider{
		provider("without1", plain), provider("without2", plain),
		provider("short400", using(croft.MemoryMB, 400)),
		provider("dead"),
		provider("short214", using(croft.MemoryMB, 214)),
		provider("raced"),
	}
	hosts := map[croft.HostID]croft.Host{}
	for _, p := range providers {
		hosts[p.ID] = croft.Host{ID: p.ID, Alive: p.ID != "dead"}
	}
	got := Explain(Question{Query: q, Providers: providers, Hosts: hosts,
		Dropped: map[croft.HostID]string{"raced": "another request was faster"}})
	want := []Row{
		{[]string{"raced"}, []string{"another request was faster"}},
		{[]string{"short214", "short400"}, []string{"214 MB short of MEMORY_MB 4096"}},
		{[]string{"without1", "without2"}, []string{"lacks HW_CPU_X86_AVX2"}},
		{[]string{"dead"}, []string{"its agent is not running"}},
	}
	if diff := cmp.Diff(want, got.Rows); diff != "" {
		t.Error(diff)
	}
}

func TestTheSmallestChangeIsNamed(t *testing.T) {
	up := func(p croft.Provider) croft.Host { return croft.Host{ID: p.ID, Alive: true} }
	off := func(p croft.Provider) croft.Host { return croft.Host{ID: p.ID} }
	limited := inventory(croft.MemoryMB, func(i *croft.Inventory) { i.MaxUnit, i.StepSize = 3000, 512 })
	coarse := inventory(croft.DiskGB, func(i *croft.Inventory) { i.MinUnit, i.StepSize = 16, 8 })
	const query = "resources=VCPU:1,MEMORY_MB:4096,DISK_GB:10"
	for _, c := range []struct {
		name     string
		query    string
		provider croft.Provider
		host     func(croft.Provider) croft.Host
		disks    []croft.Volume
		want     string
	}{
		{"what is free", query, provider("h", using(croft.MemoryMB, 214)), up, nil, "with MEMORY_MB:3882 it fits on h"},
		{"the most that one gets, in steps", query, provider("h", limited), up, nil,
			"with MEMORY_MB:2560 it fits on h"},
		{"the least that one gets, in steps", query, provider("h", coarse), up, nil, "with DISK_GB:16 it fits on h"},
		{"amounts, and what it lacks", query + "&required=CUSTOM_SSD", provider("h", using(croft.MemoryMB, 96)), up,
			nil,
			"with MEMORY_MB:4000 and without CUSTOM_SSD it fits on h"},
		{"a class that is not offered", query + ",CUSTOM_FPGA:1", provider("h"), up, nil,
			"without CUSTOM_FPGA 1 it fits on h"},
		{"nothing is left of what it needs", query, provider("h", using(croft.VCPU, 4)), up, nil, ""},
		{"more is claimed than there is", query, provider("h", using(croft.VCPU, 6)), up, nil, ""},
		{"the agent is not running", query, provider("h", using(croft.MemoryMB, 214)), off, nil, ""},
		{"it has room by now", query, provider("h"), up, nil, ""},
		{"the sum of several groups", query + "&resources1=VCPU:4", provider("h"), up, nil, ""},
		{"new volumes are not counted", query, provider("h", using(croft.DiskGB, 60)), up,
			[]croft.Volume{{SizeGB: 35}}, "with DISK_GB:5 it fits on h"},
		{"new volumes alone do not fit", query, provider("h", using(croft.DiskGB, 60)), up,
			[]croft.Volume{{SizeGB: 40}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			q, err := ParseQuery(c.query)
			if err != nil {
				t.Fatal(err)
			}
			host := c.host(c.provider)
			got := Explain(Question{Query: q.WithDisks(c.disks), Providers: []croft.Provider{c.provider},
				Hosts: map[croft.HostID]croft.Host{host.ID: host}}).Change.withoutDisks(c.disks)
			said := ""
			if got != nil {
				said = got.String()
			}
			if said != c.want {
				t.Errorf("got %q, want %q", said, c.want)
			}
		})
	}
}

func TestExplanationIsOneSentence(t *testing.T) {
	wanted := croft.Resources{croft.VCPU: 1}
	for _, c := range []struct {
		name string
		e    Explanation
		want string
	}{
		{"nobody offers anything", Explanation{Wanted: wanted},
			"no host offers anything to claim VCPU:1 from; start an agent with `croft up` or `croft serve compute`"},
		{
			"the nearest miss is named", Explanation{Wanted: wanted,
				Rows: []Row{{[]string{"h1", "h2"}, []string{"1 short of VCPU 1"}}}},
			"VCPU:1 fits on no host; the nearest, h1: 1 short of VCPU 1",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.e.Error(); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestAFullHostIsNearerThanOneOfAnotherArchitecture(t *testing.T) {
	arm := provider("arm", using(croft.VCPU, 4), using(croft.MemoryMB, 4096), using(croft.DiskGB, 100))
	arm.ID, arm.Name, arm.Traits = "arm", "arm", []croft.Trait{croft.TraitAArch64}
	x86 := provider("a-host")
	x86.ID, x86.Name = "x86", "a-host"
	q, err := ParseQuery("resources=VCPU:1,MEMORY_MB:256,DISK_GB:1&root_required=COMPUTE_ARCH_AARCH64")
	if err != nil {
		t.Fatal(err)
	}
	got := Explain(Question{Query: q, Providers: []croft.Provider{x86, arm}, Hosts: map[croft.HostID]croft.Host{
		"arm": {ID: "arm", Alive: true, Arch: []croft.Arch{croft.ArchAArch64}}, "x86": {ID: "x86", Alive: true}},
		Spec: croft.Spec{InstanceSettings: croft.InstanceSettings{Machine: croft.Machine{Arch: croft.ArchAArch64}}}})
	want := "DISK_GB:1,MEMORY_MB:256,VCPU:1 fits on no host; the nearest, arm: "
	if !strings.HasPrefix(got.Error(), want) || got.Change != nil {
		t.Errorf("got %v and the change %v, want %q and no change", got, got.Change, want)
	}
}
