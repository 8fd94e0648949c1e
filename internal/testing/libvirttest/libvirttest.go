// Package libvirttest gives tests a libvirt at qemu:///system with its default network active. It uses a running
// libvirt, and leaves one that it starts running for the next test.
package libvirttest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// URI is the address of the libvirt that Start provides.
const URI = "qemu:///system"

// lockFile prevents concurrent test binaries from starting the daemons twice.
const lockFile = "/tmp/croft-libvirt-test.lock"

var start = sync.OnceValue(func() error {
	lock, err := os.OpenFile(lockFile, os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return err
	}
	defer lock.Close() // this also releases the lock
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	if err := run(filepath.Join(root, "scripts", "start-libvirt")); err != nil {
		return err
	}
	return startNetwork("default")
})

// Start makes libvirt answer, or fails the test with the reason. It needs root and the packages that
// scripts/install-deps installs.
func Start(t testing.TB) {
	t.Helper()
	if err := start(); err != nil {
		t.Fatalf("libvirt for tests: %v", err)
	}
}

// Virsh runs virsh and returns its output; an error fails the test. Tests use it to inspect and change libvirt
// without the code under test.
func Virsh(t testing.TB, args ...string) string {
	t.Helper()
	out, err := virsh(args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// startNetwork starts a defined, inactive network; several test binaries, and croft itself, may do so concurrently.
func startNetwork(name string) error {
	active := func() (bool, error) {
		out, err := virsh("net-list", "--name")
		for line := range strings.Lines(out) {
			if strings.TrimSpace(line) == name {
				return true, err
			}
		}
		return false, err
	}
	if ok, err := active(); ok || err != nil {
		return err
	}
	_, startErr := virsh("net-start", name)
	if ok, err := active(); ok || err != nil {
		return err
	}
	return startErr
}

// moduleRoot returns the nearest directory with a go.mod, from the test's directory upwards.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", os.ErrNotExist
		}
		dir = filepath.Dir(dir)
	}
}

func virsh(args ...string) (string, error) {
	return output("virsh", append([]string{"--quiet", "--connect", URI}, args...)...)
}

func run(name string, args ...string) error {
	_, err := output(name, args...)
	return err
}

// output runs a program and returns its output. It does not wait for daemons that keep the output open.
func output(name string, args ...string) (string, error) {
	var out, errs strings.Builder
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return out.String(), &runError{name: name, args: args, words: strings.TrimSpace(errs.String()), err: err}
	}
	return out.String(), nil
}

type runError struct {
	name  string
	args  []string
	words string
	err   error
}

func (e *runError) Error() string {
	return strings.Join(append([]string{e.name}, e.args...), " ") + ": " + e.err.Error() + ": " + e.words
}

func (e *runError) Unwrap() error { return e.err }

// Dir returns a directory that QEMU can access, which is removed when the test ends; t.TempDir's is accessible only to
// its user.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "croft-libvirttest-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Guest returns a copy of the small guest image, which scripts/guest/build builds if it is missing.
func Guest(t testing.TB) string {
	t.Helper()
	image, err := guest()
	if err != nil {
		t.Fatalf("guest image for tests: %v", err)
	}
	b, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(Dir(t), "guest.qcow2")
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

var guest = sync.OnceValues(func() (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	image := filepath.Join(root, "build", "tiny.qcow2")
	if _, err := os.Stat(image); err == nil {
		return image, nil
	}
	if err := os.MkdirAll(filepath.Dir(image), 0o755); err != nil {
		return "", err
	}
	return image, run(filepath.Join(root, "scripts", "guest", "build"), image)
})
