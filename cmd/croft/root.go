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
	"croft/cli/admin"
	"croft/cli/args"
	"croft/cli/hosts"
	"croft/cli/images"
	"croft/cli/instances"
	"croft/cli/keys"
	"croft/cli/pools"
	"croft/cli/top"
	"croft/internal/build"
	"croft/internal/plain"
	"croft/pool/resalloc"
)

// commands are croft's subcommands, each made in a file of its own.
func commands() []*cobra.Command {
	return []*cobra.Command{
		instances.Command(),
		upCommand(),
		computeCommand(),
		mdserverCommand(),
		placementCommand(),
		hosts.Command(),
		top.Command(),
		admin.TokenCommand(), etcdCommand(),
		caCommand(),
		admin.AuditCommand(),
		keys.Command(),
		pools.Command(poolServeCommand()),
		pools.TicketCommand(),
		images.Command(),
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
	if same := resalloc.Command(filepath.Base(name), resallocBackend); same != nil {
		finished(same)
		completion := completionCommand()
		completion.Hidden = true // resalloc's own help has no such command
		same.AddCommand(completion)
		same.SetVersionTemplate(resalloc.VersionTemplate(same.Name()))
		return same
	}
	root := &cobra.Command{
		Use:   "croft",
		Short: "A small cloud for virtual machines",
		Long: `croft is a small cloud for virtual machines: hosts offer inventory, a claim takes
some of it atomically, an order tells the host's agent, the agent makes it so.

  croft up                                                a cloud on this machine
  croft schedule VCPU:1,MEMORY_MB:256,DISK_GB:1 --wait    a virtual machine in it`,
		Args: func(cmd *cobra.Command, given []string) error {
			if len(given) == 0 {
				return nil
			}
			return args.UnknownCommand(cmd, given[0])
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
	root.Version = build.Version
	root.SetVersionTemplate("croft {{.Version}}\n")
	root.SilenceErrors, root.SilenceUsage = true, true
	root.DisableSuggestions = true
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(args.FlagError)
	return root
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
		if e, ok := errors.AsType[*args.Exited](err); ok {
			report(stderr, e.Err)
			continue
		}
		if errors.Is(err, context.Canceled) {
			err = fmt.Errorf("interrupted: %w", err)
		}
		fmt.Fprintln(stderr, "croft:", plain.Lines(err.Error()))
	}
}

// exitCode is that of the first thing that went wrong, by its kind; a deadline that
// passed counts as unavailable.
func exitCode(err error) int {
	if err == nil {
		return croft.ExitOK
	}
	first := apart(err)[0]
	if e, ok := errors.AsType[*args.Exited](first); ok {
		return e.Code
	}
	if croft.KindOf(first) == "" && errors.Is(first, context.DeadlineExceeded) {
		return croft.ExitUnavailable
	}
	return croft.ExitCode(first)
}
