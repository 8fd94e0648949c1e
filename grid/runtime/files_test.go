package runtime_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"croft/grid/machine"
	"croft/grid/runtime/runtimetest"
	"croft/grid/unit"
	"croft/internal/testing/patient"
)

// Symlinks in an image resolve from its root directory, including absolute ones and ones with .. components.
func TestAFileOfAProcessStaysInItsImage(t *testing.T) {
	t.Parallel()
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

// TestASecretWithoutAModeIsForTheUnitsUserAlone: other users in the unit, or with access to its files, cannot read it.
func TestASecretWithoutAModeIsForTheUnitsUserAlone(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("giving files away takes root")
	}
	for _, c := range []struct {
		name   string
		change func(u *unit.Unit)
		mode   os.FileMode
		owner  uint32
	}{
		{"of root", func(*unit.Unit) {}, 0o600, 0},
		{"of a number", func(u *unit.Unit) { u.User = "1234:5678" }, 0o600, 1234},
		{"of a name in an image", func(u *unit.Unit) { u.User = "web" }, 0o644, 0},
		{"of a name of the node", func(u *unit.Unit) { u.User, u.Image = "nobody", unit.Image{} }, 0o600, 65534},
		{"of a name that the node does not have", func(u *unit.Unit) { u.User, u.Image = "no-such-user", unit.Image{} },
			0o644, 0},
		{"with a mode", func(u *unit.Unit) { u.Files[0].ModeUnset, u.Files[0].Mode = false, 0o640 }, 0o640, 0},
		{"no secret", func(u *unit.Unit) { u.Files[0].ModeUnset, u.Files[0].Secret = false, false }, 0o644, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := runtimetest.Suite{Name: "process", Machine: machine.Local{}, StateDir: stateDir(t)}
			u := s.Unit(t)
			u.Files = []unit.File{{Path: "/etc/key", Mode: 0o644, Content: "s3cret", Digest: "1", Secret: true,
				ModeUnset: true}}
			c.change(&u)
			if err := s.Open(t).Prepare(t.Context(), s.Machine, u); err != nil {
				t.Fatal(err)
			}
			if err := s.Open(t).Create(t.Context(), s.Machine, u); err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(filepath.Join(s.StateDir, "units", u.Name(), "files", "0"))
			if err != nil {
				t.Fatal(err)
			}
			if owner := info.Sys().(*syscall.Stat_t).Uid; info.Mode().Perm() != c.mode || owner != c.owner {
				t.Errorf("mode %v of %d, want %v of %d", info.Mode(), owner, c.mode, c.owner)
			}
		})
	}
}

// TestTheLogOfAProcessIsBounded: the output of a unit does not fill the disk, and the newest lines can be read.
func TestTheLogOfAProcessIsBounded(t *testing.T) {
	t.Parallel()
	runtimetest.Need(t, "unshare", "setsid", "nsenter", "chroot")
	if _, err := os.Stat("/run/systemd/system"); err == nil {
		t.Skip("the journal of systemd has bounds of its own")
	}
	s := runtimetest.Suite{Name: "process", Machine: machine.Local{}, StateDir: stateDir(t),
		Repository: fstest.MapFS{"hardpoints/runtime/process.yaml": {Data: []byte(
			"extends: process\nvariables: {log_bytes: \"4000\", log_every: \"0.05\"}\n")}}}
	u := s.Unit(t)
	u.Command = []string{"sh", "-c", `n=0; while [ "$((n = n + 1))" -lt 9000 ]; do echo "this is line $n"; sleep 0.01; done`}
	r := s.Open(t)
	for _, do := range []func(context.Context, machine.Machine, unit.Unit) error{r.Prepare, r.Create, r.Start} {
		if err := do(t.Context(), s.Machine, u); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(s.StateDir, "units", u.Name())
	patient.Until(t, "the log was shortened twice", func() bool {
		old, err := os.ReadFile(filepath.Join(dir, "log.1"))
		return err == nil && len(old) <= 4000 && !strings.Contains(string(old), "line 1\n")
	})
	var said strings.Builder
	if err := r.Logs(t.Context(), s.Machine, u, 5, &said); err != nil || strings.Count(said.String(), "\n") < 5 {
		t.Errorf("it said %q, %v", said.String(), err)
	}
}
