// Package shell runs the commands of pools with the shell, each in its own process group and, if this process may make
// one, in its own control group, with a time limit and limited output. Processes carry a mark in their environment, by
// which a later server finds and ends the processes of an earlier one.
package shell

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"

	"croft"
	"croft/internal/wording"
	"croft/pool"
)

// Config configures a Runner.
type Config struct {
	Dir  string // directory of the logs, which are in its subdirectory hooks/; required
	Mark string // distinguishes the processes of this installation from those of others; required
}

// Runner runs hooks. It implements pool.Hooks.
type Runner struct {
	logs     string // directory of the files %06d_<kind>
	begun    *begun
	mark     string
	identity string // of the directory
	groups   *groups
	system   []string // this process's environment
}

var _ pool.Hooks = (*Runner)(nil)

// Limits of a hook besides its own.
const (
	killAfter = time.Second     // from SIGTERM to SIGKILL
	waitDelay = 2 * time.Second // for output, after the shell has ended
	forever   = 1 << 62         // until a hook is stopped
)

// New creates the directories and locks them until Close. Conflict: another runner has them.
func New(c Config) (*Runner, error) {
	if c.Dir == "" || c.Mark == "" {
		return nil, croft.Errorf(croft.Invalid, "shell: Dir and Mark are required")
	}
	r := &Runner{logs: filepath.Join(c.Dir, "hooks"), mark: c.Mark, system: os.Environ()}
	if err := os.MkdirAll(r.logs, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory for what hooks print: %w", err)
	}
	var err error
	if r.begun, err = openBegun(filepath.Join(c.Dir, "begun")); err != nil {
		return nil, err
	}
	if r.identity, err = identityIn(c.Dir); err != nil {
		return nil, errors.Join(err, r.begun.close())
	}
	r.groups = openGroups(c.Dir, r.identity)
	return r, nil
}

// identityIn reads or creates the identity of a directory, which the caller has locked.
func identityIn(dir string) (string, error) {
	file := filepath.Join(dir, "place")
	text, err := os.ReadFile(file)
	if err == nil && len(text) > 0 {
		return string(text), nil
	}
	name := uuid.NewString()
	if err := os.WriteFile(file, []byte(name), 0o600); err != nil {
		return "", fmt.Errorf("name the directory for what hooks print: %w", err)
	}
	return name, nil
}

// Directory identifies the directory, which at most one runner has locked.
func (r *Runner) Directory() string { return r.identity }

// Close closes the files. No hook may be running.
func (r *Runner) Close() error {
	r.groups.close()
	return r.begun.close()
}

// marked returns the mark of one run: installation, kind and resource.
func (r *Runner) marked(h pool.Hook) string {
	return fmt.Sprintf("%s=%s/%s/%d/%016x", markName, r.mark, h.Kind, h.Resource, rand.Uint64())
}

// Run implements pool.Hooks.
func (r *Runner) Run(ctx context.Context, h pool.Hook) ([]byte, error) {
	log := openLog(r.logFile(h.Resource, h.Kind), h.Resource)
	defer log.close()
	kept := newCapture(h.Output)
	out := io.MultiWriter(log, kept)
	if h.Kind == pool.HookNew {
		r.begun.begin()
		defer func() { r.begun.end(ctx.Err() != nil) }()
		out = io.MultiWriter(log, kept, begunWriter{r.begun, h.Resource})
	}
	limited, cancel := context.WithTimeout(ctx, h.Limit)
	defer cancel()
	mark := r.marked(h)
	cmd, kill := r.command(limited, h, mark)
	defer kill.Stop()
	group := r.groups.open(h)
	defer group.close()
	if h.Kind == pool.HookDelete {
		defer r.groups.forget(h.Resource)
	}
	group.hold(cmd)
	last := &lastLine{}
	cmd.Stdout, cmd.Stderr = log, io.MultiWriter(log, last)
	if h.Output != pool.OutputNone {
		cmd.Stdout = out
	}
	err := verdict(ctx, limited, h, cmd.Run(), last)
	if err != nil && cmd.Process != nil { // after success, background processes stay
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // ESRCH: all have ended
		if left := endMarked(func(m string) bool { return m == mark }); left != nil {
			err = fmt.Errorf("%w; %w", err, left)
		}
		if left := group.end(); left != nil {
			err = fmt.Errorf("%w; %w", err, left)
		}
	}
	return kept.output(), err
}

// command returns the shell for a hook, and a timer that kills its process group some time after ctx ended. The timer
// must be stopped when the shell has ended, since the group's number may be reused.
func (r *Runner) command(ctx context.Context, h pool.Hook, mark string) (cmd *exec.Cmd, kill *time.Timer) {
	cmd = exec.CommandContext(ctx, "/bin/sh", "-c", h.Command)
	cmd.Env = append(append(r.system[:len(r.system):len(r.system)], h.Env...), mark)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = waitDelay
	kill = time.AfterFunc(forever, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	cmd.Cancel = func() error {
		if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM); err != nil {
			return os.ErrProcessDone
		}
		kill.Reset(killAfter)
		return nil
	}
	return cmd, kill
}

// verdict returns the error of a failed hook, with the last line that it wrote to its standard error; nil: it
// succeeded.
func verdict(ctx, limited context.Context, h pool.Hook, err error, said *lastLine) error {
	err = failure(ctx, limited, h, err)
	if line := said.text(); err != nil && line != "" {
		return fmt.Errorf("%w: %s", err, line)
	}
	return err
}

func failure(ctx, limited context.Context, h pool.Hook, err error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("the command was stopped: %w", context.Cause(ctx))
	case limited.Err() != nil && err != nil:
		return croft.Errorf(croft.Unavailable, "the command was killed after %s, its limit", wording.Duration(h.Limit))
	case errors.Is(err, exec.ErrWaitDelay): // a background process keeps the output open
		return nil
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return fmt.Errorf("the command was ended by signal %d (%s)", status.Signal(), status.Signal())
		}
		return fmt.Errorf("the command ended with status %d", exit.ExitCode())
	}
	if err != nil {
		return fmt.Errorf("run the command: %w", err)
	}
	return nil
}

// Forget implements pool.Hooks.
func (r *Runner) Forget(ids ...pool.ResourceID) {
	for _, id := range ids {
		for _, name := range r.Logs(id) {
			_ = os.Remove(name) // it does not exist, or it does no harm
		}
		r.groups.forget(id)
	}
}

// kinds are the kinds of hooks for one resource.
var kinds = []pool.HookKind{pool.HookNew, pool.HookLivecheck, pool.HookRelease, pool.HookDelete}

// Logs implements pool.Hooks.
func (r *Runner) Logs(id pool.ResourceID) (files []string) {
	for _, kind := range kinds {
		name := r.logFile(id, kind)
		if _, err := os.Stat(name); err == nil {
			files = append(files, name)
		}
	}
	return files
}

func (r *Runner) logFile(id pool.ResourceID, kind pool.HookKind) string {
	return filepath.Join(r.logs, fmt.Sprintf("%06d_%s", id, kind))
}

// parseMark splits a process's mark; false: it belongs to another installation.
func (r *Runner) parseMark(mark string) (kind pool.HookKind, id pool.ResourceID, ours bool) {
	rest, ours := strings.CutPrefix(mark, markName+"="+r.mark+"/")
	parts := strings.Split(rest, "/")
	if !ours || len(parts) != 3 {
		return "", 0, false
	}
	n, err := strconv.ParseInt(parts[1], 10, 64)
	return pool.HookKind(parts[0]), pool.ResourceID(n), err == nil
}

// Sweep implements pool.Hooks.
func (r *Runner) Sweep(_ context.Context, spare func(pool.ResourceID) bool) (map[pool.ResourceID][]byte, error) {
	err := endMarked(func(mark string) bool {
		kind, id, ours := r.parseMark(mark)
		return ours && !(kind == pool.HookNew && spare(id))
	})
	if err != nil {
		return nil, err
	}
	err = r.groups.sweep(func(kind pool.HookKind, id pool.ResourceID) bool {
		return !(kind == pool.HookNew && spare(id))
	})
	if err != nil {
		return nil, err
	}
	return r.begun.read()
}

// sweepTime is how long killed processes may take to end: only those waiting for a disk take long.
const sweepTime = 5 * time.Second

// endMarked kills the processes with one of these marks, even children outside the process group, until none is left.
func endMarked(those func(mark string) bool) error {
	for deadline := time.Now().Add(sweepTime); ; {
		alive, err := marked(those)
		if err != nil || len(alive) == 0 {
			return err
		}
		for _, pid := range alive {
			_ = syscall.Kill(pid, syscall.SIGKILL) // ESRCH: it has ended
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d processes of hooks cannot be ended, such as %d", len(alive), alive[0])
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// marked finds the processes with one of these marks.
func marked(those func(mark string) bool) (pids []int, err error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("look for processes of hooks: %w", err)
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("look for processes of hooks: %w", err)
	}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == os.Getpid() {
			continue
		}
		environ, err := os.ReadFile("/proc/" + name + "/environ")
		if err != nil {
			if errors.Is(err, os.ErrPermission) || errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
				continue // it belongs to another user, or it has ended
			}
			return nil, fmt.Errorf("look at process %d: %w", pid, err)
		}
		if mark := markIn(environ); mark != "" && those(mark) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// markIn returns the variable with the mark, with its name.
func markIn(environ []byte) string {
	for _, v := range bytes.Split(environ, []byte{0}) {
		if bytes.HasPrefix(v, []byte(markName+"=")) {
			return string(v)
		}
	}
	return ""
}

// markName is the environment variable with the mark.
const markName = "CROFT_HOOK"
