package compute_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/shirou/gopsutil/v3/common"

	"croft"
	"croft/compute"
	"croft/internal/standard"
)

var facts = compute.Facts{
	Name: "h1", Arch: "amd64", CPUs: 8, CPUFlags: []string{"avx2", "svm", "nonsense"}, Threads: true,
	MemoryMiB: 16000, DiskGiB: 100, DiskUseGiB: 30,
}

func TestOfferIsTheFactsLessTheReserves(t *testing.T) {
	t.Parallel()
	host := croft.Host{ID: croft.NewHostID(), Name: "h1", VirtType: "kvm"}
	got := compute.Offer{VCPURatio: 2, ReservedMiB: 1000, ReservedDiskGB: 5}.Provider(host, "p", facts)
	want := map[croft.ResourceClass]croft.Inventory{
		croft.VCPU:     {Total: 8, MinUnit: 1, MaxUnit: 8, StepSize: 1, AllocationRatio: 2},
		croft.MemoryMB: {Total: 16000, Reserved: 1000, MinUnit: 1, MaxUnit: 16000, StepSize: 1, AllocationRatio: 1},
		croft.DiskGB:   {Total: 100, Reserved: 35, MinUnit: 1, MaxUnit: 100, StepSize: 1, AllocationRatio: 1},
	}
	if diff := cmp.Diff(want, got.Inventories); diff != "" {
		t.Error(diff)
	}
	if got.ID != host.ID || got.Name != "h1" {
		t.Errorf("got provider %s %q, want the host's", got.ID, got.Name)
	}
}

func TestAReserveBeyondTheTotalLeavesNothingButIsNoError(t *testing.T) {
	t.Parallel()
	got := compute.Offer{ReservedMiB: 1 << 40}.Provider(croft.Host{}, "p", facts).Inventories[croft.MemoryMB]
	if got.Capacity() != 0 {
		t.Errorf("got capacity %d, want 0", got.Capacity())
	}
}

func TestWhatThereIsNoneOfIsNotOffered(t *testing.T) {
	t.Parallel()
	small := facts
	small.DiskGiB = 0 // less than 1 GiB
	got := compute.Offer{}.Provider(croft.Host{}, "p", small).Inventories
	if _, there := got[croft.DiskGB]; there || len(got) != 2 {
		t.Errorf("got %v, want no DISK_GB, since Placement takes no total of 0", got)
	}
}

func TestTraitsAreTrueOfGuests(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, virt    string
		has, hasNever []croft.Trait
	}{
		{"under kvm the host's CPU counts", "kvm",
			[]croft.Trait{"HW_CPU_X86_AVX2", "HW_CPU_X86_AMD_SVM", "HW_CPU_HYPERTHREADING", "CUSTOM_CROFT_VIRT_KVM"},
			[]croft.Trait{"HW_CPU_X86_SSE2"}},
		{"under emulation QEMU's CPU counts", "qemu",
			[]croft.Trait{"HW_CPU_X86_SSE2", "CUSTOM_CROFT_VIRT_QEMU"},
			[]croft.Trait{"HW_CPU_X86_SVM", "HW_CPU_HYPERTHREADING"}},
		{"a simulated host has no CPU to speak of", "sim",
			[]croft.Trait{"CUSTOM_CROFT_VIRT_SIM", "COMPUTE_NODE"}, []croft.Trait{"HW_CPU_X86_AVX2"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := compute.Offer{Traits: []croft.Trait{"CUSTOM_SSD"}}.Provider(croft.Host{VirtType: test.virt}, "p",
				facts).Traits
			for _, trait := range append(test.has, "CUSTOM_SSD") {
				if !slices.Contains(got, trait) {
					t.Errorf("%s is missing from %v", trait, got)
				}
			}
			for _, trait := range test.hasNever {
				if slices.Contains(got, trait) {
					t.Errorf("%s is claimed and not true", trait)
				}
			}
		})
	}
}

func TestEveryTraitButCustomOnesIsAStandardOne(t *testing.T) {
	t.Parallel()
	all := facts
	all.CPUFlags = compute.KnownCPUFlags()
	for _, virt := range []string{"kvm", "qemu"} {
		for _, trait := range (compute.Offer{}).Provider(croft.Host{VirtType: virt}, "p", all).Traits {
			if !slices.Contains(standard.Traits(), string(trait)) && trait[:7] != "CUSTOM_" {
				t.Errorf("%s is no standard trait", trait)
			}
		}
	}
}

func TestLocationsShareTheAggregatesOfTheirLevels(t *testing.T) {
	t.Parallel()
	a := compute.Aggregates("p", "site1/row2/rack7")
	b := compute.Aggregates("p", "/site1/row2/rack8/")
	if len(a) != 3 || len(b) != 3 || a[0] != b[0] || a[1] != b[1] || a[2] == b[2] {
		t.Errorf("got %v and %v, want site and row shared and the racks apart", a, b)
	}
	if len(compute.Aggregates("p", "")) != 0 {
		t.Error("no location has an aggregate")
	}
	if compute.Aggregates("q", "site1")[0] == a[0] {
		t.Error("two installations share an aggregate")
	}
}

func TestTraitsAreInOrderAndOfTheArchitecture(t *testing.T) {
	t.Parallel()
	for _, arch := range []string{"amd64", "arm64"} {
		for _, virt := range []string{"qemu", "kvm", ""} {
			f := facts
			f.Arch, f.CPUFlags, f.Threads = arch, nil, false
			got := compute.Offer{Traits: []croft.Trait{"COMPUTE_NODE", "A"}}.Provider(croft.Host{VirtType: virt}, "p",
				f).Traits
			if !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) || got[0] != "A" {
				t.Errorf("%s: got %v", arch, got)
			}
			for trait, want := range map[croft.Trait]bool{"HW_ARCH_X86_64": arch == "amd64",
				"HW_ARCH_AARCH64":     arch == "arm64",
				"COMPUTE_ARCH_X86_64": false, "HW_CPU_X86_SSE2": arch == "amd64" && virt == "qemu",
				"HW_CPU_HYPERTHREADING": false, "CUSTOM_CROFT_VIRT_": false} {
				if slices.Contains(got, trait) != want {
					t.Errorf("%s of %s has %s: %v", virt, arch, trait, !want)
				}
			}
		}
	}
	one := facts
	one.DiskGiB = 1
	if got := (compute.Offer{}).Provider(croft.Host{}, "p", one).Inventories[croft.DiskGB]; got.Total != 1 {
		t.Errorf("one GiB is offered as %+v", got)
	}
}

// machine returns a context in which the machine has these files instead of those of /proc.
func machine(t *testing.T, cpuinfo, stat, meminfo string) context.Context {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"cpuinfo": cpuinfo, "stat": stat, "meminfo": meminfo} {
		if text == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return context.WithValue(t.Context(), common.EnvKey, common.EnvMap{common.HostProcEnvKey: dir,
		common.HostSysEnvKey: filepath.Join(dir, "sys")})
}

func TestFactsAreOfTheMachine(t *testing.T) {
	t.Parallel()
	const memory = "MemTotal:        2097152 kB\nMemFree:         1048576 kB\n"
	cpu := func(n, cores int, flags string) string {
		return fmt.Sprintf("processor\t: %d\nphysical id\t: 0\ncpu cores\t: %d\nflags\t\t: %s\n\n", n, cores, flags)
	}
	plain := func(n int) string { return fmt.Sprintf("processor\t: %d\n\n", n) }
	for _, c := range []struct {
		name               string
		cpus, stat, memory string
		want               compute.Facts // without the disk's facts
		fails              bool
	}{
		{"threads", cpu(0, 1, "avx2 svm") + cpu(1, 1, "avx2 svm"), "", memory,
			compute.Facts{CPUs: 2, Threads: true, CPUFlags: []string{"avx2", "svm"}, MemoryMiB: 2048}, false},
		{"cores", cpu(0, 2, "avx") + cpu(1, 2, "avx"), "", memory,
			compute.Facts{CPUs: 2, CPUFlags: []string{"avx"}, MemoryMiB: 2048}, false},
		{"a machine that does not tell its cores", plain(0) + plain(1), "", memory,
			compute.Facts{CPUs: 2, MemoryMiB: 2048}, false},
		{"a machine that tells only how many CPUs it has", "", "cpu  1\ncpu0 1\n", memory,
			compute.Facts{CPUs: 1, MemoryMiB: 2048}, false},
		{"no CPUs", "", "", memory, compute.Facts{}, true},
		{"an amount of memory that is none", cpu(0, 1, ""), "", "MemTotal: much kB\n", compute.Facts{}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := machine(t, c.cpus, c.stat, c.memory)
			got, err := compute.ReadFacts(ctx, t.TempDir(), 0)
			if (err != nil) != c.fails {
				t.Errorf("got %v", err)
			}
			if c.fails {
				return
			}
			got.Name, got.Arch, got.DiskGiB, got.DiskUseGiB = "", "", 0, 0
			if diff := cmp.Diff(c.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
	ctx := machine(t, cpu(0, 1, ""), "", memory)
	if _, err := compute.ReadFacts(ctx, filepath.Join(t.TempDir(), "none"), 0); err == nil {
		t.Error("a directory that is not there has a size")
	}
	whole, err := compute.ReadFacts(ctx, t.TempDir(), 1<<62)
	if err != nil || whole.DiskUseGiB != 0 {
		t.Errorf("where all is croft's, others use %d GiB, %v", whole.DiskUseGiB, err)
	}
}

func TestFactsAreReadFromThisMachine(t *testing.T) {
	t.Parallel()
	f, err := compute.ReadFacts(t.Context(), t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if f.CPUs < 1 || f.MemoryMiB < 1 || f.DiskGiB < 1 || f.DiskUseGiB > f.DiskGiB || f.Name == "" {
		t.Errorf("got %+v", f)
	}
}

func TestAStateDirectoryIsOneProcesssAndKeepsTheUUID(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state")
	_, err := compute.ReadHostID(path, false)
	if croft.KindOf(err) != croft.NotFound {
		t.Errorf("got %v, want not found: nothing was minted yet", err)
	}
	dir, err := compute.OpenStateDir(path)
	if err != nil {
		t.Fatal(err)
	}
	first, err := dir.HostID()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := compute.OpenStateDir(path); croft.KindOf(err) != croft.Conflict {
		t.Errorf("got %v, want a conflict", err)
	}
	if err := dir.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := compute.OpenStateDir(path)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if second, err := again.HostID(); err != nil || second != first {
		t.Errorf("got %s, %v, want %s for ever", second, err, first)
	}
	if err := os.WriteFile(filepath.Join(path, "host-id"), []byte("garbage"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := again.HostID(); croft.KindOf(err) != croft.Invalid {
		t.Errorf("got %v, want a damaged UUID refused", err)
	}
}
