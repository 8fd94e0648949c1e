package runtime_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"go.uber.org/goleak"

	"croft/grid/machine"
	"croft/grid/runtime/runtimetest"
	"croft/grid/unit"
	"croft/internal/testing/patient"
)

func TestMain(m *testing.M) {
	patient.SideBySide(4)
	goleak.VerifyTestMain(m)
}

// stateDir returns a directory for units. Tests must end all mounts and writes in it before it is removed.
func stateDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "croft-grid-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	runtimetest.Reap(t, dir)
	return dir
}

// family lists a process and all its descendants.
func family(pid int) []int {
	all := []int{pid}
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for _, child := range strings.Fields(string(text)) {
		if n, err := strconv.Atoi(child); err == nil {
			all = append(all, family(n)...)
		}
	}
	return all
}

// ended reports whether a process has released all its resources.
func ended(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := strings.Cut(string(stat), ") ")
	return err != nil || strings.HasPrefix(state, "Z")
}

// kill ends a unit of a supervised runtime, and changes its record to that of another boot.
func kill(state string) func(t *testing.T, u unit.Unit) {
	return func(t *testing.T, u unit.Unit) {
		file := state + "/units/" + u.Name() + "/pid"
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		words := strings.Fields(string(text))
		pid, err := strconv.Atoi(words[0])
		if err != nil {
			t.Fatal(err)
		}
		all := family(pid)
		if err := syscall.Kill(-pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		for _, one := range all { // a container's first process may have a session of its own
			_ = syscall.Kill(one, syscall.SIGKILL) // it may have ended
		}
		// After a reboot, no process holds a lock, for example that of an image.
		patient.Until(t, "all of its processes have ended", func() bool {
			return !slices.ContainsFunc(all, func(one int) bool { return !ended(one) })
		})
		// An unrelated process gets the process ID.
		other := strconv.Itoa(os.Getpid()) + " " + words[1] + " 00000000-0000-0000-0000-000000000000\n"
		if err := os.WriteFile(file, []byte(other), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestProcesses(t *testing.T) {
	t.Parallel()
	runtimetest.Need(t, "unshare", "setsid", "nsenter", "chroot")
	state := stateDir(t)
	runtimetest.Run(t, runtimetest.Suite{Name: "process", Machine: machine.Local{}, StateDir: state,
		Reboot: kill(state)})
}

// TestAProcessThatGetsNoSIGTERMIsNotWaitedFor: the kernel drops it for the first process of a namespace that does not
// catch it, so there is nothing to wait for. The test would take an hour.
func TestAProcessThatGetsNoSIGTERMIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	runtimetest.Need(t, "unshare", "setsid", "nsenter", "chroot")
	s := runtimetest.Suite{Name: "process", Machine: machine.Local{}, StateDir: stateDir(t)}
	u := s.Unit(t)
	u.Command, u.Options = []string{"sleep", "100000"}, map[string]string{"stop_seconds": "3600"}
	r := s.Open(t)
	for _, do := range []func(context.Context, machine.Machine, unit.Unit) error{r.Prepare, r.Create, r.Start, r.Stop} {
		if err := do(t.Context(), s.Machine, u); err != nil {
			t.Fatal(err)
		}
	}
	if now, err := r.Status(t.Context(), s.Machine, u); err != nil || now.Running {
		t.Errorf("it is %+v, %v", now, err)
	}
}

// TestAProgramRunsInAProcessWhoseImageIsTheRootOfTheNode: the process keeps the root directory of the node, so a
// changed root directory is no sign that the process entered its image. A link to the root is the same image.
func TestAProgramRunsInAProcessWhoseImageIsTheRootOfTheNode(t *testing.T) {
	t.Parallel()
	runtimetest.Need(t, "unshare", "setsid", "nsenter", "chroot")
	link := filepath.Join(t.TempDir(), "root")
	if err := os.Symlink("/", link); err != nil {
		t.Fatal(err)
	}
	for _, root := range []string{"/", "//", link} {
		t.Run(root, func(t *testing.T) {
			s := runtimetest.Suite{Name: "process", Machine: machine.Local{}, StateDir: stateDir(t)}
			u := s.Unit(t)
			u.Image = unit.Image{Rootfs: root}
			u.Files = []unit.File{{Path: "/run/" + u.Name() + ".txt", Mode: 0o644, Content: "its own"}}
			r := s.Open(t)
			type step = func(context.Context, machine.Machine, unit.Unit) error
			for _, do := range []step{r.Prepare, r.Create, r.Start} {
				if err := do(t.Context(), s.Machine, u); err != nil {
					t.Fatal(err)
				}
			}
			var said, complained strings.Builder
			err := r.Exec(t.Context(), s.Machine, u, []string{"cat", u.Files[0].Path}, nil, &said, &complained)
			if err != nil || said.String() != "its own" {
				t.Errorf("a program in it said %q and %q: %v", &said, &complained, err)
			}
			for _, do := range []step{r.Stop, r.Remove} {
				if err := do(t.Context(), s.Machine, u); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestNspawn(t *testing.T) {
	t.Parallel()
	runtimetest.Need(t, "systemd-nspawn", "setsid", "nsenter")
	state := stateDir(t)
	runtimetest.Run(t, runtimetest.Suite{Name: "systemd-nspawn", Machine: machine.Local{}, StateDir: state,
		Reboot: kill(state)})
}

func TestRunc(t *testing.T) {
	t.Parallel()
	runtimetest.Need(t, "runc", "setsid")
	state := stateDir(t)
	runtimetest.Run(t, runtimetest.Suite{Name: "runc", Machine: machine.Local{}, StateDir: state, Reboot: kill(state)})
}

// podman is the runtime podman, with flags for machines whose kernel and limits are like those in a container.
const podman = `
extends: podman
variables:
  podman: [podman, --runtime, runc, --root, ROOT/storage, --runroot, ROOT/run]
  create: [--ulimit, "nofile=1024:1024", --ulimit, "nproc=1024:1024"]
`

func TestPodman(t *testing.T) {
	t.Parallel()
	runtimetest.Need(t, "podman", "runc")
	state := stateDir(t)
	program := []string{"podman", "--runtime", "runc", "--root", state + "/storage", "--runroot", state + "/run"}
	run := func(t *testing.T, args ...string) string {
		t.Helper()
		out, err := machine.Output(context.WithoutCancel(t.Context()), machine.Local{}, nil,
			append(program[:len(program):len(program)], args...)...)
		if err != nil {
			t.Errorf("podman %q: %v", args, err)
		}
		return out
	}
	t.Cleanup(func() {
		_, _ = machine.Output(context.Background(), machine.Local{}, nil, "umount", state+"/storage/overlay")
	})
	runtimetest.Run(t, runtimetest.Suite{
		Name: "podman", Machine: machine.Local{}, StateDir: state,
		Repository: fstest.MapFS{"hardpoints/runtime/podman.yaml": {Data: []byte(strings.ReplaceAll(podman, "ROOT",
			state))}},
		Adopts: true,
		Stranger: func(t *testing.T, name string) {
			run(t, "create", "--name", name, "--network=host", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024",
				"--rootfs", "/", "true")
			t.Cleanup(func() {
				_, _ = machine.Output(context.Background(), machine.Local{}, nil,
					append(program[:len(program):len(program)], "rm", "--force", name)...)
			})
		},
		Reboot: func(t *testing.T, u unit.Unit) { run(t, "kill", u.Name()) },
	})
	t.Run("an image whose tag was moved", func(t *testing.T) {
		s := runtimetest.Suite{Name: "podman", Machine: machine.Local{}, StateDir: state,
			Repository: fstest.MapFS{"hardpoints/runtime/podman.yaml": {Data: []byte(strings.ReplaceAll(podman, "ROOT",
				state))}}}
		const tag = "localhost/moves:1"
		s.Change = func(_ *testing.T, u *unit.Unit) { u.Image = unit.Image{Registry: tag} }
		move := func() {
			if _, err := machine.Output(t.Context(), machine.Local{}, bytes.NewReader(runtimetest.Archive(t)),
				append(program[:len(program):len(program)], "import", "--quiet", "--message", rand.Text(), "-",
					tag)...); err != nil {
				t.Fatal(err)
			}
		}
		move()
		u, r := s.Unit(t), s.Open(t)
		if err := errors.Join(r.Prepare(t.Context(), s.Machine, u), r.Create(t.Context(), s.Machine, u)); err != nil {
			t.Fatal(err)
		}
		for _, old := range []bool{false, true} {
			if list, err := r.List(t.Context(), s.Machine, u.Cluster); err != nil || len(list) != 1 ||
				list[0].OldImage != old {
				t.Errorf("%+v, %v; want old image %t", list, err, old)
			}
			move()
		}
	})
}
