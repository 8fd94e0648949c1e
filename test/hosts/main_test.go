package hosts

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
	binaries   string // directory with croft and schedule
	guestImage string // the small guest
)

func TestMain(m *testing.M) {
	if text := os.Getenv(roleEnv); text != "" {
		if err := play(text); err != nil {
			os.Exit(complain(err))
		}
		return
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "croft-hosts-bin-")
	if err != nil {
		return complain(err)
	}
	defer os.RemoveAll(dir)
	binaries = dir
	if err := command("go", "build", "-race", "-tags", "libvirt_dlopen", "-o", filepath.Join(dir, "croft"), "./cmd/croft"); err != nil {
		return complain(err)
	}
	if err := os.Symlink("croft", filepath.Join(dir, "schedule")); err != nil {
		return complain(err)
	}
	if guestImage = os.Getenv("CROFT_TEST_GUEST"); guestImage == "" {
		guestImage = filepath.Join(dir, "tiny.qcow2")
		if err := command("scripts/guest/build", guestImage); err != nil {
			return complain(err)
		}
	}
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		return complain(err)
	}
	return code
}

func complain(err error) int {
	fmt.Fprintln(os.Stderr, "hosts:", err)
	return 1
}

// command runs a program in the root of the repository.
func command(name string, args ...string) error {
	cmd := exec.CommandContext(context.Background(), name, args...)
	cmd.Dir = "../.."
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %v: %w\n%s", name, args, err, out)
	}
	return nil
}
