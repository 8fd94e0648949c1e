package node

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"croft"
	"croft/compute"
	"croft/node/settings"
)

func TestAnAgentReportsTheChecksThatFind(t *testing.T) {
	h := &host{dir: &compute.StateDir{Path: t.TempDir()}, settings: settings.Settings{Hypervisor: "sim"}}
	named := func() (names []string) {
		for _, f := range h.diagnose()(t.Context()) {
			if f.Found == "" || f.Level != croft.FindingWarn && f.Level != croft.FindingFail {
				t.Errorf("got the finding %+v", f)
			}
			names = append(names, f.Check)
		}
		return names
	}
	if names := named(); slices.Contains(names, "state") || slices.Contains(names, "certificates") {
		t.Errorf("of a new state directory, %q find faults", names)
	}
	file := filepath.Join(h.dir.Path, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.dir.Path = file
	if names := named(); !slices.Contains(names, "state") {
		t.Errorf("of a state directory that is a file, only %q find faults", names)
	}
}
