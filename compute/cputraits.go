package compute

import (
	"maps"
	"slices"

	"croft"
)

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

// KnownCPUFlags lists the CPU flags that have a trait.
func KnownCPUFlags() []string { return slices.Sorted(maps.Keys(flagTraits)) }
