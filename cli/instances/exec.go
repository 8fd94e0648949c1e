package instances

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/compute"
	"croft/control/api"
	"croft/internal/command"
	"croft/internal/out"
	"croft/internal/wording"
)

// foreignExit stands for an exit code that no process on this machine can have.
const foreignExit = 255

func execCommand() *cobra.Command {
	var stdin bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "exec UUID|NAME -- COMMAND...",
		Short: "Run a command in an instance without its network, as root",
		Long: `exec runs a command in the guest through QEMU's guest agent (qemu-guest-agent), which
has to run there. It needs no network and no key, and the command runs as root without a
shell: write sh -c '...' for one. When the command has ended, exec prints what it wrote
to stdout and stderr, the first MiB of each, and returns its exit code.

A command whose time is over (--timeout) is ended, and exec gives up with exit code 6; a
guest without timeout(1) lets it go on. With --stdin the command reads what exec reads, of
256 KiB at most. A word of the command may have 64 KiB, and all together 128 KiB.

Exit codes: that of the command; 127 if the guest has no such program, 128 and the number
of the signal that ended it. If the command has not run: 2 wrong usage, 3 not found, 5 the
instance is off, 6 its guest agent does not answer, or not in time, 7 not permitted.`,
		Example: `  schedule exec web -- ip address
  schedule exec web -- sh -c 'journalctl -b | tail'
  schedule exec web --stdin -- tee /etc/motd < motd`,
		ValidArgsFunction: args.CompleteInstances(1),
		Args:              command.Count(2, -1),
		RunE: func(cmd *cobra.Command, given []string) error {
			if timeout <= 0 || timeout > api.LongestPatience {
				return croft.Errorf(croft.Invalid, "--timeout %s: use more than 0, and at most %s",
					wording.Duration(timeout), wording.Duration(api.LongestPatience))
			}
			if err := checkWords(given[1:]); err != nil {
				return err
			}
			in := api.GuestCommand{Timeout: api.Patience(timeout), Command: given[1:]}
			if stdin {
				var err error
				if in.Stdin, err = io.ReadAll(io.LimitReader(cmd.InOrStdin(), compute.MaxGuestInput+1)); err != nil {
					return fmt.Errorf("read stdin: %w", err)
				}
				if len(in.Stdin) > compute.MaxGuestInput {
					return croft.Errorf(croft.Invalid, "stdin is longer than %d KiB, which is what a guest agent takes: copy "+
						"it with schedule cp", compute.MaxGuestInput>>10)
				}
			}
			return within(cmd, func(ctx context.Context, c *session) error { return c.exec(ctx, cmd, given[0], in) })
		},
	}
	cmd.Flags().BoolVarP(&stdin, "stdin", "i", false, "let the command read what this reads")
	command.DurationVar(cmd.Flags(), &timeout, "timeout", time.Minute, "end the command after this `time`")
	return cmd
}

// checkWords returns Invalid for a command that is too long for a guest agent.
func checkWords(words []string) error {
	sum := 0
	for n, word := range words {
		if sum += len(word); len(word) > compute.MaxGuestWord || sum > compute.MaxGuestCommand {
			return croft.Errorf(croft.Invalid, "the command is too long at word %d of %d: a word may have %d KiB, and all "+
				"together %d KiB; copy a script with schedule cp, or let sh read it with --stdin", n+1, len(words),
				compute.MaxGuestWord>>10, compute.MaxGuestCommand>>10)
		}
	}
	return nil
}

// exec runs a command in an instance and prints what it wrote.
func (c *session) exec(ctx context.Context, cmd *cobra.Command, idOrName string, in api.GuestCommand) error {
	i, err := c.Instance(ctx, idOrName)
	if err != nil {
		return err
	}
	in.InstanceNamed = c.Named(string(i.ID))
	result, err := c.RunCommand(ctx, in)
	if err != nil {
		return err
	}
	err = errors.Join(out.ShowText(cmd.OutOrStdout(), bytes.NewReader(result.Stdout)),
		out.ShowText(cmd.ErrOrStderr(), bytes.NewReader(result.Stderr)))
	if result.Cut {
		c.Say("the output of the command in %s is cut: the rest of it is lost", i.Name)
	}
	switch code := result.Exit; {
	case err != nil:
		return err
	case result.TimedOut:
		return croft.Errorf(croft.Unavailable, "run a command in %s: it did not end within %s, and was ended; --timeout "+
			"gives it more time", i.Name, wording.Duration(time.Duration(in.Timeout)))
	case code < 0 || code > foreignExit:
		return &command.Exited{Code: foreignExit}
	case code > 0:
		return &command.Exited{Code: code}
	}
	return nil
}
