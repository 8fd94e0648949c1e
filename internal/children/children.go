// Package children runs programs that must not outlive the process that started them, not even if it is killed.
package children

import (
	"os/exec"
	"runtime"
	"syscall"
)

// Run runs a command. Its process is killed when this process ends, however it ends.
func Run(cmd *exec.Cmd) error {
	// The kernel kills the child when the thread that started it ends, so this thread must live as long as the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	return cmd.Run()
}
