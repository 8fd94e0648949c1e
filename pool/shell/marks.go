package shell

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

// sweepTime is how long killed processes may take to end: only those waiting for a disk take long.
const sweepTime = 5 * time.Second

// endMarked kills the processes with one of these marks until there are none, even children outside the process
// group.
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
				continue // another user's, or it has ended
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
