package node

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"croft"
	"croft/compute"
)

func TestGuestsRunOnHostsWhoseMachinesAreKnown(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		if err := checkMachine(arch); err != nil {
			t.Error(err)
		}
	}
	err := checkMachine("riscv64")
	if croft.KindOf(err) != croft.Invalid || !strings.Contains(err.Error(), "it is riscv64") ||
		!strings.Contains(err.Error(), "not supported") {
		t.Errorf("on riscv64: %v", err)
	}
}

func TestAHostRecordsTheArchitecturesOfItsMachines(t *testing.T) {
	h := &host{log: slog.New(slog.DiscardHandler)}
	for name, c := range map[string]struct {
		machines []croft.Trait
		want     []croft.Arch
		kind     error
	}{
		"of x86_64 alone nothing, as older versions": {[]croft.Trait{croft.TraitX86, croft.TraitTPM}, nil, nil},
		"both":        {[]croft.Trait{croft.TraitAArch64, croft.TraitX86}, croft.Archs(), nil},
		"aarch64":     {[]croft.Trait{croft.TraitAArch64}, []croft.Arch{croft.ArchAArch64}, nil},
		"no machines": {[]croft.Trait{croft.TraitTPM}, nil, croft.Invalid},
	} {
		got, err := h.archs(compute.Facts{Machines: c.machines})
		if !slices.Equal(got, c.want) || (err != nil) != (c.kind != nil) || err != nil && !errors.Is(err, c.kind) {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
}
