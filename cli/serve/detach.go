package serve

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/node/settings"
)

// readyFD is the environment variable that tells a background process to report on a pipe when the cloud accepts
// requests.
const readyFD = "CROFT_READY_FD"

// slowStart is the time after which a slow start shows the last line of its log.
const slowStart = 5 * time.Second

// startDetached runs the same command in the background, and returns when that is ready, or with its final error
// message.
func startDetached(cmd *cobra.Command, s settings.Settings) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find croft's own binary: %w", err)
	}
	if err := os.MkdirAll(s.StateDir, 0o711); err != nil {
		return croft.Errorf(croft.Invalid, "make the state directory: %w; give another with --state-dir", err)
	}
	path := filepath.Join(s.StateDir, "croft.log")
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	defer log.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	defer r.Close()
	child := exec.Command(self, forChild(os.Args[1:])...)
	child.Args[0] = "croft"
	child.Env = append(os.Environ(), readyFD+"=3")
	child.ExtraFiles = []*os.File{w}
	child.Stdout, child.Stderr = log, log
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = child.Start()
	_ = w.Close()
	if err != nil {
		return fmt.Errorf("start croft in the background: %w", err)
	}
	if err := awaitReady(cmd, r, child, path); err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "croft is up, process %d; its log is %s\n", child.Process.Pid, path)
	return child.Process.Release()
}

// awaitReady returns when the child reports that it is ready, or with its final error message.
func awaitReady(cmd *cobra.Command, r *os.File, child *exec.Cmd, log string) error {
	said := make(chan error, 1)
	go func() {
		line, err := bufio.NewReader(r).ReadString('\n')
		if err == nil && line != "ready\n" {
			err = errors.New(line)
		}
		said <- err
	}()
	slow := time.NewTicker(slowStart)
	defer slow.Stop()
	shown := ""
	for ended := false; !ended; {
		select {
		case err := <-said:
			if err == nil {
				return nil
			}
			ended = true
		case <-slow.C:
			if line := lastLine(log); line != shown {
				shown = line
				fmt.Fprintf(cmd.ErrOrStderr(), "croft up is not ready yet; the last line of %s is: %s\n", log, line)
			}
		case <-cmd.Context().Done():
			_ = child.Process.Signal(syscall.SIGTERM)
			_ = child.Wait()
			return cmd.Context().Err()
		}
	}
	err := child.Wait() // it closed the pipe without a message, so it is ending
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return fmt.Errorf("croft ended immediately; see %s", log)
	}
	return croft.Errorf(kindOfExit(exit.ExitCode()), "%s", lastLine(log))
}

// kindOfExit returns the error kind of an exit code.
func kindOfExit(code int) croft.Kind {
	for _, kind := range []croft.Kind{croft.Invalid, croft.NotFound, croft.NoCapacity, croft.Conflict,
		croft.Unavailable} {
		if croft.ExitCode(kind) == code {
			return kind
		}
	}
	return ""
}

// lastLine returns the final error message of a process, without the program's name.
func lastLine(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return "croft ended immediately; see " + path
	}
	defer f.Close()
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, size-4096), io.SeekStart)
	}
	tail, _ := io.ReadAll(io.LimitReader(f, 4096))
	lines := strings.Split(strings.TrimSpace(string(tail)), "\n")
	return strings.TrimPrefix(lines[len(lines)-1], "croft: ")
}

// forChild returns the arguments without the ones that this process has already handled: joining, and going into the
// background.
func forChild(args []string) []string {
	var kept []string
	for i := 0; i < len(args); i++ {
		switch arg := args[i]; {
		case arg == "--detach" || arg == "--detach=true" || strings.HasPrefix(arg, "--join="):
		case arg == "--etcd-member" || strings.HasPrefix(arg, "--etcd-member="):
		case arg == "--join":
			i++ // skip the token too
		default:
			kept = append(kept, arg)
		}
	}
	return kept
}

// tellReady reports that requests are accepted, to the process that started this one in the background, or else on the
// terminal.
func tellReady(stderr io.Writer, text string) {
	if os.Getenv(readyFD) == "" {
		fmt.Fprintln(stderr, text)
		return
	}
	pipe := os.NewFile(3, "ready")
	if pipe != nil {
		_, _ = pipe.WriteString("ready\n") // if nobody reads it, nobody waits for it
		_ = pipe.Close()
	}
}
