package system

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

var (
	mistakesFlag = flag.Int("mistakes", 0, "for each deliberate mistake, how many seeds are tried until one finds it")
	mistakeFlag  = flag.String("mistake", "", "try only the mistakes whose descriptions contain this text")
)

// edit puts a mistake into a file: it replaces a text by that text with the mistake, which On turns on.
type edit struct{ file, old, new string }

// mistakes are deliberate mistakes in the product, at least one for each invariant that it breaks. One that two parts
// prevent has two edits.
var mistakes = []struct {
	name       string
	invariants []string // of the list in rest_test.go, or what watchful and nothingIsLeft report
	shared     bool     // it is about shared storage, which worlds with odd seeds have
	edits      []edit
}{
	{"a volume claims one GiB whatever its size", []string{"the audit is clean", "claims are as recorded"}, false,
		[]edit{{"schedule/volumes/volumes.go", "resized(had, v, v.SizeGB)",
			"resized(had, v, mistake.Instead[int64](On, 1, v.SizeGB))"}}},
	{"a resize leaves the domain as it is", []string{"guests are as recorded"}, false, []edit{{"compute/pass.go",
		"a.Hypervisor.Resize(ctx, p.id, want[croft.VCPU], want[croft.MemoryMB]); err",
		"mistake.Unless(On, func() error {\n" +
			"\t\treturn a.Hypervisor.Resize(ctx, p.id, want[croft.VCPU], want[croft.MemoryMB])\n\t}); err"}}},
	{"Placement admits claims of twice the capacity", []string{"nothing is claimed twice"}, false, []edit{{
		"placement/ledger/claims.go", "float64(inv.Total-inv.Reserved)*inv.Ratio {",
		"float64(inv.Total-inv.Reserved)*inv.Ratio*mistake.Instead(On, 2.0, 1.0) {"}}},
	{"a fenced host is not switched off", []string{"no disk is open twice"}, false, []edit{{"hosts/fence.go",
		"f.switchOff(ctx, h.Host); err", "mistake.Unless(On, func() error { return f.switchOff(ctx, h.Host) }); err"}}},
	{"an attached volume is attached to another instance", []string{"a volume is in one guest"}, false, []edit{
		{"schedule/volumes/volumes.go",
			`case v.Instance != "" && v.Instance != to:`, `case v.Instance != "" && v.Instance != to && !On:`},
		{"compute/volumes.go", "if !slices.Contains(has, id) {", "if !slices.Contains(has, id) || On {"}}},
	{"a snapshot is removed without its data", []string{"no data is lost"}, false, []edit{{"compute/layers.go",
		"a.Images.Merge(ctx, layers[at:]); err",
		"mistake.Unless(On, func() error { return a.Images.Merge(ctx, layers[at:]) }); err"}}},
	{"a removed volume stays charged", []string{"quotas are the sums of records"}, false, []edit{{
		"etcdstore/volumes/volumes.go",
		"tenants.Charge{Project: v.Project, Amounts: amounts(v, v.SizeGB)}, entry(v, v.Revision))}",
		"tenants.Charge{Project: v.Project, Amounts: amounts(v, mistake.Instead[int64](On, 0, v.SizeGB))},\n" +
			"\t\tentry(v, v.Revision))}"}}},
	{"a removed snapshot keeps its name", []string{"nothing is left"}, false, []edit{{"etcdstore/volumes/volumes.go",
		"return append(ops, clientv3.OpDelete(s.keys().snapshot(v.Project, of, v.Name)),",
		"return append(ops, clientv3.OpDelete(s.keys().snapshot(v.Project, of, mistake.Instead(On, \"\", v.Name))),"}}},
	{"a lease that is renewed does not protect a disk, nor does the lock of QEMU", []string{"no disk is open twice"}, true,
		[]edit{{"compute/storage/lock.go", "d.observe(ctx, id, was.Host); err",
			"mistake.Unless(On, func() error { return d.observe(ctx, id, was.Host) }); err"},
			{"test/system/shared_test.go", `guest := m.frozenWith(files); guest != ""`,
				`guest := m.frozenWith(files); guest != "" && !On`}}},
	{"a host that lost an instance removes its disk on shared storage", []string{"shared disks outlive hosts"}, true,
		[]edit{{"compute/shared.go", "return dir.Release(ctx, p.id)\n}\n\n// removeDisk",
			"return mistake.Instead(On, dir.Remove, dir.Release)(ctx, p.id)\n}\n\n// removeDisk"}}},
	{"a volume on shared storage is used without its lock", []string{"shared disks outlive hosts"}, true, []edit{{
		"compute/sharedvolumes.go", "dir.AcquireVolume(ctx, v.ID, v.TakesFrom...)",
		"mistake.Unless(On, func() error { return dir.AcquireVolume(ctx, v.ID, v.TakesFrom...) })"}}},
	{"a removed volume on shared storage keeps its file", []string{"shared disks outlive hosts"}, true, []edit{{
		"compute/volumes.go", "dir.RemoveVolume(ctx, v.ID)",
		"mistake.Unless(On, func() error { return dir.RemoveVolume(ctx, v.ID) })"}}},
	{"the file of a removed image stays", []string{"images are where recorded"}, false, []edit{{"compute/copies.go",
		"a.CopyFiles.Remove(id); err", "mistake.Unless(On, func() error { return a.CopyFiles.Remove(id) }); err"}}},
	{"a PCI device is given to a guest while another has it", []string{"PCI devices are as claimed"}, false, []edit{
		{"compute/passthrough.go", "return foreign || taken[address]", "return !On && (foreign || taken[address]"},
		{"compute/passthrough.go", "kept && keeper != p.id && !alsoKept\n", "kept && keeper != p.id && !alsoKept)\n"},
		{"compute/hypervisor/sim/pci.go", "if other != id &&", "if !On && other != id &&"}}},
	{"a guest does not get its PCI devices", []string{"PCI devices are as claimed"}, false, []edit{{
		"compute/passthrough.go", "if len(wanted) == 0 {", "if len(wanted) == 0 || On {"}}},
	{"a guest is a machine without the TPM of its record", []string{"guests are of their kind"}, false, []edit{{
		"compute/build.go", "Kind: p.want.Spec.Machine,",
		"Kind: mistake.Instead(On, croft.Machine{}, p.want.Spec.Machine),"}}},
	{"a guest is on a host that does not run its architecture", []string{"guests are of their kind"}, false, []edit{
		{"schedule/networks.go", "for _, t := range s.Machine.Traits() {",
			"for _, t := range mistake.Instead(On, nil, s.Machine.Traits()) {"},
		{"schedule/search.go", "other := host.Runs(s.inst.Spec.Machine.Arch); other != nil",
			"other := host.Runs(s.inst.Spec.Machine.Arch); other != nil && !On"},
		{"compute/build.go", "if p.agent.Host.Runs(arch) == nil {", "if p.agent.Host.Runs(arch) == nil || On {"}}},
	{"a host gives a guest an address that another guest has", []string{"no two guests of a host have one address"},
		false, []edit{{"compute/hypervisor/sim/sim.go", "taken || addr.Less(first)",
			"taken && !On || addr.Less(first)"}}},
	{"a guest does not get the address that its instance chose", []string{"chosen addresses are given"}, false, []edit{{
		"compute/build.go", "all[i].Address = address", "all[i].Address = mistake.Instead(On, \"\", address)"}}},
	{"two instances get one chosen address of a host", []string{"chosen addresses are given"}, false, []edit{
		{"schedule/addresses.go", "if id == inst.ID {", "if id == inst.ID || On {"},
		{"etcdstore/addresses.go", "func (k keys) addressFree(inst croft.Instance, host croft.HostID) []clientv3.Cmp {\n" +
			"\tif inst.Spec.FixedAddress == \"\" {", "func (k keys) addressFree(inst croft.Instance, host croft.HostID) " +
			"[]clientv3.Cmp {\n\tif inst.Spec.FixedAddress == \"\" || On {"}}},
	{"a bulk operation ignores its filter", []string{"bulk operations touch what they choose"}, false, []edit{{
		"cli/instances/choose.go", "api.Filtered{Filter: s.filters}",
		"api.Filtered{Filter: mistake.Instead(On, nil, s.filters)}"}}},
	{"a bulk operation leaves an instance out", []string{"bulk operations touch what they choose"}, false, []edit{{
		"cli/instances/choose.go", "for _, i := range all {\n\t\tnames = append(",
		"for _, i := range all[mistake.Instead(On, min(1, len(all)), 0):] {\n\t\tnames = append("}}},
	{"a protected instance is destroyed", []string{"protection holds"}, false, []edit{{"schedule/expiry.go",
		"	if inst.Protected {", "	if inst.Protected && !On {"}}},
	{"a backup is restored without its data", []string{"no data is lost"}, false, []edit{{"compute/restore.go",
		"disk.sizeGB, r)", "disk.sizeGB, mistake.Instead(On, io.LimitReader(r, 0), io.Reader(r)))"}}},
}

// mistakePackage is the package by which the changed files know which mistake is turned on.
const mistakePackage = `// Package mistake turns one deliberate mistake on.
package mistake

import "os"

// Is reports whether this mistake is turned on.
func Is(name string) bool { return os.Getenv("DELIBERATE_MISTAKE") == name }

// Unless calls do unless the mistake is on.
func Unless(on bool, do func() error) error {
	if on {
		return nil
	}
	return do()
}

// Instead returns the wrong value if the mistake is on.
func Instead[T any](on bool, wrong, right T) T {
	if on {
		return wrong
	}
	return right
}
`

// TestEveryInvariantIsBrokenByAMistake compiles all mistakes into one program, without a change in the tree, turns one
// on at a time, and tries seeds until one finds that the mistake breaks its invariant.
func TestEveryInvariantIsBrokenByAMistake(t *testing.T) {
	if *mistakesFlag == 0 {
		t.Skip("say with -mistakes how many seeds to try")
	}
	program := withMistakes(t)
	free := make(chan struct{}, 3) // a run mostly waits
	var work sync.WaitGroup
	for _, m := range mistakes {
		if !strings.Contains(m.name, *mistakeFlag) {
			continue
		}
		free <- struct{}{}
		work.Go(func() {
			defer func() { <-free }()
			left := slices.Clone(m.invariants)
			for n := range *mistakesFlag {
				seed := fmt.Sprint(1000 + n)
				if m.shared {
					seed = fmt.Sprint(1001 + 2*n)
				}
				cmd := exec.CommandContext(t.Context(), program, "-test.run", "^TestWholeSystem$", "-test.timeout",
					"10m", "-seed", seed)
				cmd.Env = append(os.Environ(), "DELIBERATE_MISTAKE="+m.name)
				said, err := cmd.CombinedOutput()
				for line := range strings.Lines(string(said)) {
					at := slices.IndexFunc(left, func(i string) bool { return strings.Contains(line, i+": ") })
					if err != nil && at >= 0 && !strings.Contains(line, "deadline exceeded") {
						t.Logf("%q breaks %q, found by seed %s: %s", m.name, left[at], seed, strings.TrimSpace(line))
						left = slices.Delete(left, at, at+1)
					}
				}
				if len(left) == 0 {
					return
				}
			}
			t.Errorf("%d seeds do not notice that %q breaks %q", *mistakesFlag, m.name, left)
		})
	}
	work.Wait()
}

// withMistakes returns the test program of this package with all mistakes, which are turned off.
func withMistakes(t *testing.T) string {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	put := func(name, text string) string {
		path := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	texts := map[string]string{}
	for _, m := range mistakes {
		for _, e := range m.edits {
			if texts[e.file] == "" {
				text, err := os.ReadFile(filepath.Join(root, e.file))
				if err != nil {
					t.Fatal(err)
				}
				before, after, _ := strings.Cut(string(text), "\nimport ")
				texts[e.file] = before + "\nimport \"croft/internal/mistake\"\nimport " + after
			}
			if !strings.Contains(texts[e.file], e.old) {
				t.Fatalf("mistake %q: %s does not have the text %s", m.name, e.file, e.old)
			}
			changed := strings.ReplaceAll(e.new, "On", fmt.Sprintf("mistake.Is(%q)", m.name))
			texts[e.file] = strings.ReplaceAll(texts[e.file], e.old, changed)
		}
	}
	replace := map[string]string{filepath.Join(root, "internal/mistake/mistake.go"): put("mistake.go", mistakePackage)}
	for name, text := range texts {
		replace[filepath.Join(root, name)] = put(name, text)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "system.test")
	build := exec.CommandContext(context.WithoutCancel(t.Context()), "go", "test", "-c", "-vet=off", "-overlay",
		put("overlay.json", string(overlay)), "-o", program, ".")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build with mistakes: %v\n%s", err, said)
	}
	return program
}
