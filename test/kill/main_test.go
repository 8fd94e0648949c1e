package kill

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"croft/internal/testing/built"
)

// binaries is the directory with croft and schedule.
var binaries string

// insideEnv is set in the process with a separate mount namespace, in which all mounts end with it.
const insideEnv = "CROFT_TEST_KILL_INSIDE"

func TestMain(m *testing.M) {
	if os.Geteuid() == 0 && os.Getenv(insideEnv) == "" {
		if code, err := inside(); err == nil {
			os.Exit(code)
		}
	}
	os.Exit(built.Run(m, built.Config{Name: "kill", Names: []string{"schedule"}},
		func(made built.Made) { binaries = made.Binaries }))
}

// inside runs this test in a separate mount namespace. Error: the machine does not permit it, and no disk is frozen.
func inside() (code int, err error) {
	runtime.LockOSThread() // Pdeathsig depends on the thread
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
