package standard_test

import (
	"regexp"
	"slices"
	"testing"

	"croft"
	"croft/internal/standard"
)

func TestListsAreNames(t *testing.T) {
	form := regexp.MustCompile(`^[A-Z][A-Z0-9_]*$`)
	for _, list := range [][]string{standard.Classes(), standard.Traits()} {
		seen := map[string]bool{}
		for _, name := range list {
			if !form.MatchString(name) || seen[name] {
				t.Errorf("%q is no name of its own", name)
			}
			seen[name] = true
		}
	}
	if !slices.IsSorted(standard.Traits()) {
		t.Error("the traits are not in order")
	}
}

func TestListsHoldWhatCroftUses(t *testing.T) {
	for _, class := range []croft.ResourceClass{croft.VCPU, croft.MemoryMB, croft.DiskGB} {
		if !slices.Contains(standard.Classes(), string(class)) {
			t.Errorf("no class %s", class)
		}
	}
	for _, trait := range []string{"HW_CPU_X86_AVX2", "MISC_SHARES_VIA_AGGREGATE", "COMPUTE_NODE"} {
		if !slices.Contains(standard.Traits(), trait) {
			t.Errorf("no trait %s", trait)
		}
	}
}
