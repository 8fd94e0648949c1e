package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"croft"
	"croft/grid/machine"
	"croft/grid/runtime"
	"croft/grid/state"
	"croft/grid/unit"
	"croft/internal/command"
)

// chosen is a slot of a job and its unit.
type chosen struct {
	slot state.Slot
	unit unit.Unit
}

// choose returns the slots of JOB, or the slot JOB/SLOT, that have a node.
func choose(ctx context.Context, s *state.State, name string) ([]chosen, error) {
	only := -1
	j, err := findJob(s, name)
	if at := strings.LastIndexByte(name, '/'); err != nil && at > 0 {
		if n, wrong := strconv.Atoi(name[at+1:]); wrong == nil {
			only = n
			j, err = findJob(s, name[:at])
		}
	}
	if err != nil {
		return nil, err
	}
	var list []chosen
	for _, slot := range j.Slots {
		if slot.Node == nil || only >= 0 && slot.Number != only {
			continue
		}
		u, err := s.Unit(ctx, j, slot.Number, slot.Node)
		if err != nil {
			return nil, err
		}
		list = append(list, chosen{slot, u})
	}
	if len(list) == 0 {
		return nil, croft.Errorf(croft.NotFound, "%s has no node: croft grid place gives it one", name)
	}
	return list, nil
}

// pass calls f for each slot, with its machine and its runtime.
func (o *options) pass(s *state.State, list []chosen, sshConfig string,
	f func(m machine.Machine, r *runtime.Runtime, one chosen) error) error {
	reach := newMachines(s, sshConfig)
	defer reach.dialer.Close()
	var errs []error
	for _, one := range list {
		n := reached(s, one.slot.Node)
		config := o.runtimes(s)
		config.StateDir = n.StateDir
		r, err := config.Open(one.unit.Runtime)
		if err == nil {
			m, done := reach.of(n)
			err = f(m, r, one)
			done()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("slot %d on %s: %w", one.slot.Number, n.Name, err))
		}
	}
	return errors.Join(errs...)
}

func logsCommand(o *options) *cobra.Command {
	var lines int
	var sshConfig string
	cmd := &cobra.Command{
		Use:   "logs JOB[/SLOT]",
		Short: "Print what the units of a job said last",
		Long: `logs prints the last lines that the job's units wrote, of all its slots or of one. Where there
are several, a line with the slot and its node comes before each.`,
		Example: `  croft grid logs web/front@7
  croft grid logs web/front@7/0 --lines 1000`,
		Args: command.Count(1, 1),
		RunE: func(cmd *cobra.Command, given []string) error {
			if lines < 1 {
				return croft.Errorf(croft.Invalid, "--lines %d: give 1 or more", lines)
			}
			s, err := o.load(cmd)
			if err != nil {
				return err
			}
			list, err := choose(cmd.Context(), s, given[0])
			if err != nil {
				return err
			}
			w := cmd.OutOrStdout()
			return o.pass(s, list, sshConfig, func(m machine.Machine, r *runtime.Runtime, one chosen) error {
				if len(list) > 1 {
					fmt.Fprintf(w, "==> slot %d on %s\n", one.slot.Number, one.slot.Node.Name)
				}
				return r.Logs(cmd.Context(), m, one.unit, lines, w)
			})
		},
	}
	cmd.Flags().IntVarP(&lines, "lines", "n", 100, "at most so many lines of each (`number`)")
	sshConfigFlag(cmd, &sshConfig)
	return cmd
}

func execCommand(o *options) *cobra.Command {
	var sshConfig string
	var input bool
	cmd := &cobra.Command{
		Use:   "exec JOB[/SLOT] -- COMMAND...",
		Short: "Run a program inside of a unit",
		Long: `exec runs a program inside of the unit of a slot, and ends with the program's exit code. It
wants one slot: name it where the job has several. No shell reads the command, and it has no
terminal; --stdin gives it what this command reads.`,
		Example: `  croft grid exec db -- psql -c 'select 1'
  croft grid exec web/0 --stdin -- sh < look.sh`,
		Args: command.Count(2, -1),
		RunE: func(cmd *cobra.Command, given []string) error {
			s, err := o.load(cmd)
			if err != nil {
				return err
			}
			list, err := choose(cmd.Context(), s, given[0])
			if err != nil {
				return err
			}
			if len(list) > 1 {
				return croft.Errorf(croft.Invalid, "%s has %d slots: name one, such as %s/%d", given[0], len(list),
					given[0], list[0].slot.Number)
			}
			var stdin io.Reader
			if input {
				stdin = cmd.InOrStdin()
			}
			err = o.pass(s, list, sshConfig, func(m machine.Machine, r *runtime.Runtime, one chosen) error {
				return r.Exec(cmd.Context(), m, one.unit, given[1:], stdin, cmd.OutOrStdout(), cmd.ErrOrStderr())
			})
			if ended, ok := errors.AsType[*machine.Exit](err); ok {
				return exit(ended.Code, nil)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&input, "stdin", false, "give the program this command's standard input")
	sshConfigFlag(cmd, &sshConfig)
	return cmd
}

func sshConfigFlag(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "ssh-config", "", "the ssh configuration, in place of ~/.ssh/config (`file`)")
}
