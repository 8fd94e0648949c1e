package serve

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"croft"
	"croft/cli/args"
	"croft/compute"
	"croft/internal/command"
	"croft/internal/wording"
)

// Down returns the command croft down.
func Down() *cobra.Command {
	flags := []args.HostFlag{args.StateDirFlag, args.LogLevelFlag}
	cmd := &cobra.Command{
		Use:   "down",
		Short: "End the cloud that croft up runs on this machine",
		Long: `down ends the croft that uses the state directory, such as one that croft up --detach
started, and waits until it has ended. Its virtual machines keep running, and the next
croft up finds them. If no croft runs there, it says so and exits with 0.`,
	}
	args.AddHostFlags(cmd, flags...)
	timeout := command.Duration(cmd.Flags(), "timeout", time.Minute, "wait no longer than this `duration`")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, _, err := args.LoadHostSettings(cmd, flags...)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), *timeout)
		defer cancel()
		pid, err := end(ctx, s.StateDir)
		switch {
		case err == nil && pid == 0:
			fmt.Fprintf(cmd.ErrOrStderr(), "no croft runs in %s\n", s.StateDir)
		case err == nil:
			fmt.Fprintf(cmd.ErrOrStderr(), "croft in %s has ended, process %d\n", s.StateDir, pid)
		case errors.Is(err, context.DeadlineExceeded):
			err = croft.Errorf(croft.Unavailable, "end croft in %s: process %d has not ended after %s; see its log, "+
				"%[1]s/croft.log, and wait for it with the same command", s.StateDir, pid, wording.Duration(*timeout))
		}
		return err
	}
	return cmd
}

// end asks the process that has locked a state directory to end, and waits for its end. It returns the ID of the
// process; 0: no process has locked the directory.
func end(ctx context.Context, stateDir string) (int, error) {
	holder, runs := compute.Running(stateDir)
	if !runs {
		return 0, nil
	}
	// The descriptor keeps meaning this process if another one gets its ID. The lock is read again after it was opened:
	// if the same process still has the lock, the descriptor is that of the holder.
	process, err := unix.PidfdOpen(holder.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return 0, nil
	}
	if err != nil {
		return holder.PID, fmt.Errorf("end croft, process %d: %w", holder.PID, err)
	}
	defer unix.Close(process)
	if now, runs := compute.Running(stateDir); !runs || now.PID != holder.PID {
		return 0, nil
	}
	if err := unix.PidfdSendSignal(process, syscall.SIGTERM, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return holder.PID, croft.Errorf(croft.Denied, "end croft, process %d: %w; run this as the user that started it",
			holder.PID, err)
	}
	for ctx.Err() == nil {
		fds := []unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}} // readable once the process has ended
		if n, err := unix.Poll(fds, 100); n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return holder.PID, err
		}
	}
	return holder.PID, ctx.Err()
}
