package kvm

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestVirtualizes(t *testing.T) {
	for name, c := range map[string]struct {
		cpuinfo string
		want    bool
	}{
		"an Intel processor with VT-x does":              {"processor\t: 0\nflags\t\t: fpu vmx ssse3\n", true},
		"an AMD processor with SVM does":                 {"flags\t\t: fpu svm\n", true},
		"a processor of a guest without nesting doesn't": {"flags\t\t: fpu hypervisor lahf_lm\n", false},
		"a flag that only contains the letters is none":  {"flags\t\t: vmx_other tsvm\n", false},
		"where there are no flags the guest decides":     {"Features\t: fp asimd\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := virtualizes(bufio.NewScanner(strings.NewReader(c.cpuinfo))); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestProbeAnswersWithAReason(t *testing.T) {
	r := Probe(t.Context())
	if r.Reason == "" {
		t.Errorf("no reason for usable=%v", r.Usable)
	}
	t.Logf("%+v", r)
}

func TestProbeOnce(t *testing.T) {
	first := ProbeOnce(t.Context(), filepath.Join(t.TempDir(), "absent", "kvm.json"))

	t.Run("keeps its answer", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "kvm.json")
		if got := ProbeOnce(t.Context(), file); got != first {
			t.Errorf("got %+v, want %+v", got, first)
		}
		rewrite(t, file, func(m map[string]any) { m["reason"] = "from the file" })
		if got := ProbeOnce(t.Context(), file); got.Reason != "from the file" {
			t.Errorf("it probed again: %+v", got)
		}
	})
	t.Run("probes again after another boot", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "kvm.json")
		ProbeOnce(t.Context(), file)
		rewrite(t, file, func(m map[string]any) { m["key"], m["reason"] = "another boot", "old" })
		if got := ProbeOnce(t.Context(), file); got != first {
			t.Errorf("got %+v, want %+v", got, first)
		}
	})
	t.Run("probes again where the file is damaged", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "kvm.json")
		if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := ProbeOnce(t.Context(), file); got != first {
			t.Errorf("got %+v, want %+v", got, first)
		}
	})
}

func rewrite(t *testing.T, file string, change func(map[string]any)) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	change(m)
	if b, err = json.Marshal(m); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
