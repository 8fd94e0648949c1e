// Package e2e runs croft as its users do: the built program as a process of its
// own, libvirt and emulated guests for real, and looks from outside, with virsh,
// HTTP and etcd's own client, at what it did and what it left behind.
package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// What TestMain makes once for all tests.
var (
	repository string // its root
	binaries   string // directory with croft and its other names
	guestImage string // the small guest
)

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", ownPrefix()+"bin-")
	if err != nil {
		return complain(err)
	}
	defer os.RemoveAll(dir)
	if repository, err = filepath.Abs("../.."); err != nil {
		return complain(err)
	}
	if binaries, err = build(dir); err != nil {
		return complain(err)
	}
	if guestImage, err = guest(dir); err != nil {
		return complain(err)
	}
	code := m.Run()
	if err := endShared(); err != nil {
		code = complain(err)
	}
	if err := goleak.Find(); err != nil && code == 0 {
		return complain(err)
	}
	return code
}

func complain(err error) int {
	fmt.Fprintln(os.Stderr, "e2e:", err)
	return 1
}

// build makes croft with the race detector in it; a race ends up in its log, which
// every test looks at.
func build(dir string) (string, error) {
	if err := command("go", "build", "-race", "-tags", "libvirt_dlopen", "-o", filepath.Join(dir, "croft"), "./cmd/croft"); err != nil {
		return "", err
	}
	for _, name := range []string{"schedule", "compute", "mdserver"} {
		if err := os.Symlink("croft", filepath.Join(dir, name)); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// guest returns the image that CROFT_TEST_GUEST names, or builds it.
func guest(dir string) (string, error) {
	if image := os.Getenv("CROFT_TEST_GUEST"); image != "" {
		return filepath.Abs(image)
	}
	image := filepath.Join(dir, "tiny.qcow2")
	return image, command("scripts/guest/build", image)
}

func command(name string, args ...string) error {
	cmd := exec.CommandContext(context.Background(), name, args...)
	cmd.Dir = repository
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %v: %w\n%s", name, args, err, out)
	}
	return nil
}
