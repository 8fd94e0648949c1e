package kill

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// binaries is the directory with croft and schedule.
var binaries string

// insideEnv is set in the process that has mounts of its own, so that none outlives it.
const insideEnv = "CROFT_TEST_KILL_INSIDE"

func TestMain(m *testing.M) {
	if os.Geteuid() == 0 && os.Getenv(insideEnv) == "" {
		if code, err := inside(); err == nil {
			os.Exit(code)
		}
	}
	os.Exit(run(m))
}

// inside runs this test with mounts of its own. An error: the machine does not let us, and no disk is frozen.
func inside() (code int, err error) {
	runtime.LockOSThread() // Pdeathsig is about the thread
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	err = cmd.Wait()
	if _, ended := errors.AsType[*exec.ExitError](err); ended {
		return max(1, cmd.ProcessState.ExitCode()), nil
	}
	return 0, err
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "croft-kill-bin-")
	if err != nil {
		return complain(err)
	}
	defer os.RemoveAll(dir)
	binaries = dir
	build := exec.Command("go", "build", "-tags", "libvirt_dlopen", "-trimpath", "-o", filepath.Join(dir, "croft"), "./cmd/croft")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		return complain(fmt.Errorf("build croft: %w\n%s", err, out))
	}
	if err := os.Symlink("croft", filepath.Join(dir, "schedule")); err != nil {
		return complain(err)
	}
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		return complain(err)
	}
	return code
}

func complain(err error) int {
	fmt.Fprintln(os.Stderr, "kill:", err)
	return 1
}
