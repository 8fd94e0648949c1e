package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"croft"
)

// killAfter is the time between SIGTERM and SIGKILL for a program on this machine.
const killAfter = 5 * time.Second

// Local is the machine that this process runs on. Unlike on other machines, a program ends when its context ends: its
// whole process group gets SIGTERM, and SIGKILL after 5 seconds.
type Local struct{}

var _ Machine = Local{}

// Start implements Machine.
func (Local) Start(ctx context.Context, c Command) (Process, error) {
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Stdout, cmd.Stderr = c.Stdout, c.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = killAfter
	p := &local{ctx: ctx, cmd: cmd, broken: make(chan error, 1)}
	feed := func() {}
	if file, is := c.Stdin.(*os.File); is {
		cmd.Stdin = file
	} else if c.Stdin != nil {
		in, err := cmd.StdinPipe()
		if err != nil {
			return nil, croft.Errorf(croft.Unavailable, "run %s here: %w", c.Argv[0], err)
		}
		feed = func() { go p.feed(in, c.Stdin) }
	}
	if err := cmd.Start(); err != nil {
		return nil, croft.Errorf(croft.Unavailable, "run %s here: %w", c.Argv[0], err)
	}
	feed()
	return p, nil
}

type local struct {
	ctx    context.Context
	cmd    *exec.Cmd
	broken chan error // the error of reading Stdin, if there was one
}

// feed copies Stdin to the program. No goroutine waits for feed, because reading Stdin may block forever.
func (p *local) feed(to io.WriteCloser, from io.Reader) {
	if _, err := io.Copy(&input{to}, from); err != nil && !errors.Is(err, errInputEnded) {
		p.broken <- fmt.Errorf("read the program's input: %w", err)
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // otherwise the program would treat the truncated input as complete
	}
	_ = to.Close() // already closed if the program has ended
}

var errInputEnded = errors.New("the program reads no more")

// input writes to the program, and turns every write error into errInputEnded, so that feed can distinguish it from a
// read error.
type input struct{ to io.Writer }

func (i *input) Write(b []byte) (int, error) {
	n, err := i.to.Write(b)
	if err != nil {
		err = errInputEnded
	}
	return n, err
}

// Wait implements Process.
func (p *local) Wait() error {
	err := p.cmd.Wait()
	if p.ctx.Err() != nil {
		p.kill()
		return &Lost{p.ctx.Err()}
	}
	select {
	case broken := <-p.broken:
		p.kill()
		return broken
	default:
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

// kill sends SIGKILL to the program's process group.
func (p *local) kill() { _ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) }
