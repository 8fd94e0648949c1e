package compute

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/shirou/gopsutil/v3/cpu"
	"github.com/shirou/gopsutil/v3/disk"
	"github.com/shirou/gopsutil/v3/mem"

	"croft"
)

// Offer sets which part of the machine's resources a host offers. Ratios multiply the amount that may be claimed;
// reserved amounts are kept for the host itself.
type Offer struct {
	VCPURatio, MemoryRatio, DiskRatio          float64 // 4, 1 and 1 by default
	ReservedVCPUs, ReservedMiB, ReservedDiskGB int64
	Traits                                     []croft.Trait // additional ones, such as CUSTOM_SSD
}

// Provider describes the host to Placement: the offered inventory, the traits that guests can use, and one aggregate
// for each level of the location, so that member_of can name a site, a row or a rack.
func (o Offer) Provider(h croft.Host, partition croft.PartitionID, f Facts) croft.Provider {
	inventories := map[croft.ResourceClass]croft.Inventory{
		croft.VCPU:     inventory(int64(f.CPUs), o.ReservedVCPUs, cmp.Or(o.VCPURatio, 4)),
		croft.MemoryMB: inventory(f.MemoryMiB, o.ReservedMiB, cmp.Or(o.MemoryRatio, 1)),
		croft.DiskGB:   inventory(f.DiskGiB, o.ReservedDiskGB+f.DiskUseGiB, cmp.Or(o.DiskRatio, 1)),
	}
	// Placement accepts no total of 0, so empty classes are left out.
	maps.DeleteFunc(inventories, func(_ croft.ResourceClass, inv croft.Inventory) bool { return inv.Total < 1 })
	return croft.Provider{
		ID:          h.ID,
		Name:        h.Name,
		Inventories: inventories,
		Traits:      traits(h.VirtType, f, o.Traits),
		Aggregates:  Aggregates(partition, h.Location),
	}
}

func inventory(total, reserved int64, ratio float64) croft.Inventory {
	return croft.Inventory{
		Total: total, Reserved: min(max(reserved, 0), total),
		MinUnit: 1, MaxUnit: total, StepSize: 1, AllocationRatio: ratio,
	}
}

// Aggregates returns the UUIDs of a location's levels, outermost first. They are derived (RFC 9562, version
// 5), so that all hosts of a rack name the same ones.
func Aggregates(partition croft.PartitionID, location string) []string {
	space, err := uuid.Parse(string(partition))
	if err != nil {
		space = uuid.NewSHA1(uuid.NameSpaceOID, []byte(partition))
	}
	var all []string
	path := ""
	for level := range strings.SplitSeq(strings.Trim(location, "/"), "/") {
		if level == "" {
			continue
		}
		path += "/" + level
		all = append(all, uuid.NewSHA1(space, []byte("location"+path)).String())
	}
	return all
}

// traits lists the traits that guests on the host can use. Under emulation these are the traits of QEMU's own CPU,
// independent of the host's.
func traits(virtType string, f Facts, more []croft.Trait) []croft.Trait {
	all := []croft.Trait{
		"COMPUTE_NODE", "COMPUTE_IMAGE_TYPE_QCOW2", "COMPUTE_IMAGE_TYPE_RAW",
		"COMPUTE_FIRMWARE_BIOS", "COMPUTE_NET_VIF_MODEL_VIRTIO", "COMPUTE_STORAGE_BUS_VIRTIO",
	}
	switch f.Arch {
	case "amd64":
		all = append(all, "HW_ARCH_X86_64")
	case "arm64":
		all = append(all, "HW_ARCH_AARCH64")
	}
	switch {
	case virtType == "qemu" && f.Arch == "amd64":
		all = append(all, emulated...)
	case virtType == "kvm":
		for _, flag := range f.CPUFlags {
			if f.Arch == "amd64" { // other processors have flags of the same names
				all = append(all, flagTraits[flag]...)
			}
		}
		if f.Threads {
			all = append(all, "HW_CPU_HYPERTHREADING")
		}
	}
	if virtType != "" {
		all = append(all, croft.Trait("CUSTOM_CROFT_VIRT_"+strings.ToUpper(virtType)))
	}
	all = append(all, f.Machines...)
	all = append(all, more...)
	slices.Sort(all)
	return slices.Compact(all)
}

// Facts are the resources of the machine, from which the host's inventory is derived.
type Facts struct {
	Name       string   // host name
	Arch       string   // as Go names it: amd64, arm64
	CPUs       int      // logical
	CPUFlags   []string // as Linux names them
	Threads    bool     // more logical CPUs than cores
	MemoryMiB  int64
	DiskGiB    int64 // of the file system with the state directory
	DiskUseGiB int64 // used there by files that are not croft's, rounded up
	// what the hypervisor can give guests, as compute.Hypervisor says
	Machines []croft.Trait
}

// Archs returns the architectures of the machines that the hypervisor runs.
func (f Facts) Archs() []croft.Arch {
	return slices.DeleteFunc(croft.Archs(), func(a croft.Arch) bool { return !slices.Contains(f.Machines, a.Trait()) })
}

// ReadFacts reads the facts from the machine. ours is the number of bytes below dir that belong to croft.
func ReadFacts(ctx context.Context, dir string, ours int64) (Facts, error) {
	f := Facts{Arch: runtime.GOARCH}
	var err error
	if f.Name, err = os.Hostname(); err != nil {
		return f, fmt.Errorf("read the host's name: %w", err)
	}
	if f.CPUs, err = cpu.CountsWithContext(ctx, true); err != nil {
		return f, fmt.Errorf("count the CPUs: %w", err)
	}
	if cores, err := cpu.CountsWithContext(ctx, false); err == nil && cores > 0 {
		f.Threads = f.CPUs > cores
	}
	if info, err := cpu.InfoWithContext(ctx); err == nil && len(info) > 0 {
		f.CPUFlags = info[0].Flags // missing flags only mean missing traits, which is no error
	}
	memory, err := mem.VirtualMemoryWithContext(ctx)
	if err != nil {
		return f, fmt.Errorf("read the memory's size: %w", err)
	}
	f.MemoryMiB = int64(memory.Total >> 20)
	usage, err := disk.UsageWithContext(ctx, dir)
	if err != nil {
		return f, fmt.Errorf("read the size of the file system of %s: %w", dir, err)
	}
	f.DiskGiB = int64(usage.Total >> 30)
	foreign := int64(usage.Total) - int64(usage.Free) - ours
	f.DiskUseGiB = max(0, (foreign+1<<30-1)>>30)
	return f, nil
}

// flagTraits maps Linux CPU flags (/proc/cpuinfo) on x86 to the standard traits of os-traits.
var flagTraits = map[string][]croft.Trait{
	"3dnow":            {"HW_CPU_X86_3DNOW"},
	"abm":              {"HW_CPU_X86_ABM"},
	"aes":              {"HW_CPU_X86_AESNI"},
	"avx":              {"HW_CPU_X86_AVX"},
	"avx2":             {"HW_CPU_X86_AVX2"},
	"avx512_bitalg":    {"HW_CPU_X86_AVX512BITALG"},
	"avx512_vbmi2":     {"HW_CPU_X86_AVX512VBMI2"},
	"avx512_vnni":      {"HW_CPU_X86_AVX512VNNI"},
	"avx512_vpopcntdq": {"HW_CPU_X86_AVX512VPOPCNTDQ"},
	"avx512bw":         {"HW_CPU_X86_AVX512BW"},
	"avx512cd":         {"HW_CPU_X86_AVX512CD"},
	"avx512dq":         {"HW_CPU_X86_AVX512DQ"},
	"avx512er":         {"HW_CPU_X86_AVX512ER"},
	"avx512f":          {"HW_CPU_X86_AVX512F"},
	"avx512ifma":       {"HW_CPU_X86_AVX512IFMA"},
	"avx512pf":         {"HW_CPU_X86_AVX512PF"},
	"avx512vbmi":       {"HW_CPU_X86_AVX512VBMI"},
	"avx512vl":         {"HW_CPU_X86_AVX512VL"},
	"bmi1":             {"HW_CPU_X86_BMI"},
	"bmi2":             {"HW_CPU_X86_BMI2"},
	"f16c":             {"HW_CPU_X86_F16C"},
	"fma":              {"HW_CPU_X86_FMA3"},
	"fma4":             {"HW_CPU_X86_FMA4"},
	"gfni":             {"HW_CPU_X86_AVX512GFNI"},
	"md_clear":         {"HW_CPU_X86_INTEL_MD_CLEAR"},
	"mmx":              {"HW_CPU_X86_MMX"},
	"mpx":              {"HW_CPU_X86_MPX"},
	"pcid":             {"HW_CPU_X86_INTEL_PCID"},
	"pclmulqdq":        {"HW_CPU_X86_CLMUL"},
	"pdpe1gb":          {"HW_CPU_X86_PDPE1GB"},
	"pni":              {"HW_CPU_X86_SSE3"},
	"rtm":              {"HW_CPU_X86_TSX"},
	"sha_ni":           {"HW_CPU_X86_SHA"},
	"sse":              {"HW_CPU_X86_SSE"},
	"sse2":             {"HW_CPU_X86_SSE2"},
	"sse4_1":           {"HW_CPU_X86_SSE41"},
	"sse4_2":           {"HW_CPU_X86_SSE42"},
	"sse4a":            {"HW_CPU_X86_SSE4A"},
	"ssse3":            {"HW_CPU_X86_SSSE3"},
	"stibp":            {"HW_CPU_X86_STIBP"},
	"svm":              {"HW_CPU_X86_SVM", "HW_CPU_X86_AMD_SVM"},
	"tbm":              {"HW_CPU_X86_TBM"},
	"vaes":             {"HW_CPU_X86_AVX512VAES"},
	"vmx":              {"HW_CPU_X86_VMX", "HW_CPU_X86_INTEL_VMX"},
	"vpclmulqdq":       {"HW_CPU_X86_AVX512VPCLMULQDQ"},
	"xop":              {"HW_CPU_X86_XOP"},
}

// emulated are the traits of the CPU that QEMU 7.2 and later emulate on x86 in software (model max),
// independent of the host's CPU.
var emulated = []croft.Trait{
	"HW_CPU_X86_3DNOW", "HW_CPU_X86_ABM", "HW_CPU_X86_AESNI", "HW_CPU_X86_AVX", "HW_CPU_X86_AVX2",
	"HW_CPU_X86_BMI", "HW_CPU_X86_BMI2", "HW_CPU_X86_CLMUL", "HW_CPU_X86_F16C", "HW_CPU_X86_FMA3",
	"HW_CPU_X86_MMX", "HW_CPU_X86_SSE", "HW_CPU_X86_SSE2", "HW_CPU_X86_SSE3", "HW_CPU_X86_SSE41",
	"HW_CPU_X86_SSE42", "HW_CPU_X86_SSE4A", "HW_CPU_X86_SSSE3",
}
