package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"croft"
	"croft/internal/nearest"
)

// commands are croft's subcommands, each made in a file of its own.
func commands() []*cobra.Command {
	return []*cobra.Command{
		scheduleCommand(),
		upCommand(),
		computeCommand(),
		mdserverCommand(),
		placementCommand(),
		hostCommand(),
		topCommand(),
		tokenCommand(), etcdCommand(),
		caCommand(),
		auditCommand(),
		keyCommand(),
		poolCommand(),
		ticketCommand(),
		imageCommand(),
		benchCommand(),
		doctorCommand(),
		completionCommand(),
		manCommand(),
	}
}

// Run is the program: args as the process has them, the result an exit code. It
// returns when all that it began has ended.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	cmd := program(args[0])
	cmd.SetArgs(args[1:])
	cmd.SetIn(stdin)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(ctx)
	report(stderr, err)
	return exitCode(err)
}

// program is the command that the binary is under this name.
func program(name string) *cobra.Command {
	if same := resallocCommand(filepath.Base(name)); same != nil {
		finished(same)
		same.SetVersionTemplate(resallocVersion(same.Name()))
		return same
	}
	root := &cobra.Command{
		Use:   "croft",
		Short: "A small cloud for virtual machines",
		Long: `croft is a small cloud for virtual machines: hosts offer inventory, a claim takes
some of it atomically, an order tells the host's agent, the agent makes it so.

  croft up                                                a cloud on this machine
  croft schedule VCPU:1,MEMORY_MB:256,DISK_GB:1 --wait    a virtual machine in it`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return croft.Errorf(croft.Invalid, "there is no command %q%s", args[0], nearest.Hint(args[0], names(cmd)))
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, sub := range commands() {
		if sub.Name() == strings.TrimSuffix(filepath.Base(name), ".exe") {
			sub.AddCommand(completionCommand())
			return finished(sub)
		}
		root.AddCommand(sub)
	}
	return finished(root)
}

// finished gives a root what all roots have.
func finished(root *cobra.Command) *cobra.Command {
	root.Version = version
	root.SetVersionTemplate("croft {{.Version}}\n")
	root.SilenceErrors, root.SilenceUsage = true, true
	root.DisableSuggestions = true
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(flagError)
	return root
}

// flagError says what is wrong with a flag, and where it is only mistyped, the
// right one.
func flagError(cmd *cobra.Command, err error) error {
	var flags []string
	for flag := range allFlags(cmd) {
		flags = append(flags, "--"+flag.Name)
	}
	unknown, found := strings.CutPrefix(err.Error(), "unknown flag: ")
	if !found {
		return croft.Errorf(croft.Invalid, "%w; see %s --help", err, cmd.CommandPath())
	}
	if hint := nearest.Hint(unknown, flags); hint != "" {
		return croft.Errorf(croft.Invalid, "%s has no flag %s%s", cmd.CommandPath(), unknown, hint)
	}
	return croft.Errorf(croft.Invalid, "%s has no flag %s; see %s --help", cmd.CommandPath(), unknown, cmd.CommandPath())
}

// names are the names of a command's subcommands.
func names(cmd *cobra.Command) []string {
	var all []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			all = append(all, sub.Name())
		}
	}
	return all
}

// count wants at least and at most so many arguments; most is -1 for any number.
func count(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || most >= 0 && len(args) > most {
			return croft.Errorf(croft.Invalid, "usage: %s", cmd.UseLine())
		}
		return nil
	}
}

// apart takes errors apart that errors.Join put together: each went wrong by itself.
func apart(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error }) // a wrapped one belongs to the sentence around it
	if !ok {
		return []error{err}
	}
	all := joined.Unwrap()
	if err.Error() != errors.Join(all...).Error() {
		return []error{err} // made by Errorf from several
	}
	var flat []error
	for _, one := range all {
		flat = append(flat, apart(one)...)
	}
	return flat
}

// report prints one line for each thing that went wrong.
func report(stderr io.Writer, err error) {
	if err == nil {
		return
	}
	for _, err := range apart(err) {
		if _, told := errors.AsType[*exited](err); told {
			continue
		}
		if errors.Is(err, context.Canceled) {
			err = fmt.Errorf("interrupted: %w", err)
		}
		fmt.Fprintln(stderr, "croft:", err)
	}
}

// exitCode is that of the first thing that went wrong, by its kind; a deadline that
// passed counts as unavailable.
func exitCode(err error) int {
	if err == nil {
		return croft.ExitOK
	}
	first := apart(err)[0]
	if e, ok := errors.AsType[*exited](first); ok {
		return e.code
	}
	if croft.KindOf(first) == "" && errors.Is(first, context.DeadlineExceeded) {
		return croft.ExitUnavailable
	}
	return croft.ExitCode(first)
}
