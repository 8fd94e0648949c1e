package node

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"croft"
	"croft/internal/plain"
)

const (
	// hookTime bounds one run of a hook.
	hookTime = 30 * time.Second
	// hookSays is the maximum number of bytes of a failed hook's output in the log.
	hookSays = 500
)

// expiryHook returns a function that runs a command about an instance that expires soon; nil: no command is configured.
// The command runs without a shell, in a process group that ends with it, with an empty stdin. Its environment has only
// PATH, HOME and the instance's data, because ours may contain secrets.
func expiryHook(command []string) func(context.Context, croft.Instance) error {
	if len(command) == 0 {
		return nil
	}
	return func(ctx context.Context, inst croft.Instance) error {
		ctx, cancel := context.WithTimeout(ctx, hookTime)
		defer cancel()
		cmd := exec.CommandContext(ctx, command[0], command[1:]...)
		cmd.Dir = "/"
		cmd.Env = []string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"),
			"EXPIRING_INSTANCE=" + string(inst.ID), "EXPIRING_NAME=" + inst.Name,
			"EXPIRING_PROJECT=" + string(inst.Project), "EXPIRING_AT=" + inst.Expires.UTC().Format(time.RFC3339),
		}
		said := &tail{most: hookSays}
		cmd.Stdout, cmd.Stderr = said, said
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		cmd.WaitDelay = time.Second // a process outside the group may keep its output open
		err := cmd.Run()
		if errors.Is(err, exec.ErrWaitDelay) {
			err = nil // the command itself succeeded
		}
		if err == nil {
			return nil
		}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("it was ended, since it took too long: %w", err)
		}
		return fmt.Errorf("run expiry.hook %s: %w; its output: %s", command[0], err,
			cmp.Or(plain.Line(strings.TrimSpace(said.text.String())), "nothing"))
	}
}

// tail keeps the last bytes written.
type tail struct {
	text bytes.Buffer
	most int
}

func (t *tail) Write(p []byte) (int, error) {
	t.text.Write(p[max(0, len(p)-t.most):])
	t.text.Next(max(0, t.text.Len()-t.most))
	return len(p), nil
}
