package machine

import (
	"context"
	"errors"
	"os/exec"
	"syscall"
	"time"

	"croft"
)

// killAfter is how long a program of this machine may take to end after it was asked to.
const killAfter = 5 * time.Second

// Local is the machine that this process runs on. Unlike elsewhere, a program ends with the context: SIGTERM, and
// SIGKILL after 5 seconds, to its whole process group.
type Local struct{}

var _ Machine = Local{}

// Start implements Machine.
func (Local) Start(ctx context.Context, c Command) (Process, error) {
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdin, c.Stdout, c.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = killAfter
	if err := cmd.Start(); err != nil {
		return nil, croft.Errorf(croft.Unavailable, "run %s here: %w", c.Argv[0], err)
	}
	return &local{ctx, cmd}, nil
}

type local struct {
	ctx context.Context
	cmd *exec.Cmd
}

// Wait implements Process.
func (p *local) Wait() error {
	err := p.cmd.Wait()
	if p.ctx.Err() != nil {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // what did not end by itself
		return &Lost{p.ctx.Err()}
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	if state, ok := exit.Sys().(syscall.WaitStatus); ok && state.Signaled() {
		return &Exit{Code: 128 + int(state.Signal())}
	}
	return &Exit{Code: exit.ExitCode()}
}
