package runtime_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"croft/grid/machine"
	"croft/grid/runtime/runtimetest"
	"croft/grid/unit"
	"croft/internal/testing/patient"
)

// Links of an image count from its root directory, also absolute ones and those that climb.
func TestAFileOfAProcessStaysInItsImage(t *testing.T) {
	runtimetest.Need(t, "unshare", "setsid", "nsenter", "chroot", "tar")
	root, outside := t.TempDir(), "croft-test-"+filepath.Base(t.TempDir())+fmt.Sprint(os.Getpid())
	unpack := exec.CommandContext(t.Context(), "tar", "-xf", "-", "-C", root)
	unpack.Stdin = bytes.NewReader(runtimetest.Archive(t))
	if out, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("tar: %v: %s", err, out)
	}
	for name, to := range map[string]string{"var": "/data/var", "data/var/run": "/run", "up": "../../../../run"} {
		if err := os.MkdirAll(filepath.Join(root, "data/var"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	tree := func() string {
		out, err := exec.CommandContext(t.Context(), "find", root).Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	before := tree()
	s := runtimetest.Suite{Name: "process", Machine: machine.Local{}, StateDir: stateDir(t)}
	u := s.Unit(t)
	u.Image = unit.Image{Rootfs: root}
	u.Command = []string{"sh", "-c", "cat /var/run/" + outside + "/a /up/" + outside + "-b; sleep 1000"}
	u.Files = []unit.File{{Path: "/var/run/" + outside + "/a", Mode: 0o644, Content: "first\n"},
		{Path: "/up/" + outside + "-b", Mode: 0o644, Content: "second\n"}}
	r := s.Open(t)
	for _, do := range []func(context.Context, machine.Machine, unit.Unit) error{r.Prepare, r.Create, r.Start} {
		if err := do(t.Context(), s.Machine, u); err != nil {
			t.Fatal(err)
		}
	}
	patient.Until(t, "the unit shows its files", func() bool {
		var said strings.Builder
		return r.Logs(t.Context(), s.Machine, u, 10, &said) == nil && said.String() == "first\nsecond\n"
	})
	for _, name := range []string{outside, outside + "-b"} {
		if _, err := os.Lstat("/run/" + name); err == nil {
			t.Errorf("/run/%s was made outside of the image", name)
		}
	}
	for _, do := range []func(context.Context, machine.Machine, unit.Unit) error{r.Stop, r.Remove} {
		if err := do(t.Context(), s.Machine, u); err != nil {
			t.Fatal(err)
		}
	}
	if after := tree(); after != before {
		t.Errorf("the unit left in the image\n%s\nand there was\n%s", after, before)
	}
}
