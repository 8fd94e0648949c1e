package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"croft"
	"croft/internal/nearest"
	"croft/internal/plain"
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
		completion := completionCommand()
		completion.Hidden = true // resalloc's own help has no such command
		same.AddCommand(completion)
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
			return noCommand(cmd, args[0])
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
	if missing, ok := errors.AsType[*pflag.NotExistError](err); ok {
		return noFlag(cmd, missing)
	}
	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		want := map[string]string{
			"duration": "a duration such as 30s or 5m", "int": "a whole number", "int64": "a whole number", "uint16": "a port",
			"float64": "a number", "bool": "true or false",
		}[wrong.GetFlag().Value.Type()]
		if want != "" {
			return croft.Errorf(croft.Invalid, "--%s: want %s, not %q", wrong.GetFlag().Name, want, wrong.GetValue())
		}
	}
	return croft.Errorf(croft.Invalid, "%w; see %s --help", err, cmd.CommandPath())
}

// noFlag is about a flag that does not exist: as --name, as -n, or as -name with one dash
// too few.
func noFlag(cmd *cobra.Command, missing *pflag.NotExistError) error {
	var flags []string
	for flag := range allFlags(cmd) {
		flags = append(flags, "--"+flag.Name)
	}
	given, meant := "--"+missing.GetSpecifiedName(), "--"+missing.GetSpecifiedName()
	if short := missing.GetSpecifiedShortnames(); short != "" {
		word, _, _ := strings.Cut(short, "=")
		given, meant = "-"+word, "--"+word
	}
	if hint := nearest.Hint(meant, flags); hint != "" && len(meant) > len("--x") {
		return croft.Errorf(croft.Invalid, "%s has no flag %s%s", cmd.CommandPath(), given, hint)
	}
	return croft.Errorf(croft.Invalid, "%s has no flag %s; see %s --help", cmd.CommandPath(), given, cmd.CommandPath())
}

// otherWords are what people from elsewhere call our commands, below schedule.
var otherWords = map[string]string{
	"exec": "ssh", "run": "ssh", "login": "ssh", "rm": "destroy", "remove": "destroy", "delete": "destroy", "kill": "destroy", "ls": "list", "ps": "list",
	"restart": "reboot", "log": "logs", "describe": "show", "get": "show", "info": "show", "status": "show",
}

// noCommand is about a word that is no command of cmd. Invalid.
func noCommand(cmd *cobra.Command, word string) error {
	return croft.Errorf(croft.Invalid, "there is no command %q%s", word, commandHint(cmd, word))
}

// commandHint proposes what somebody meant who gave a word as a command; empty where
// nothing is close.
func commandHint(cmd *cobra.Command, word string) string {
	if hint := nearest.Hint(word, names(cmd)); hint != "" {
		return hint
	}
	if word == "version" {
		return fmt.Sprintf("; did you mean \"%s --version\"?", cmd.CommandPath())
	}
	for _, sub := range append(cmd.Commands(), cmd) {
		if sub.Name() != "schedule" {
			continue
		}
		if meant := cmp.Or(otherWords[word], nearest.Word(word, names(sub))); meant != "" {
			return fmt.Sprintf("; did you mean \"%s %s\"?", sub.CommandPath(), meant)
		}
	}
	return ""
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
		if err := strayWait(cmd, args, least); err != nil {
			return err
		}
		if len(args) < least || most >= 0 && len(args) > most {
			return croft.Errorf(croft.Invalid, "usage: %s", cmd.UseLine())
		}
		return nil
	}
}

// strayWait finds --wait ready, which is --wait and an argument: that flag may stand
// without a value.
func strayWait(cmd *cobra.Command, args []string, least int) error {
	wait := cmd.Flags().Lookup("wait")
	if wait == nil || !wait.Changed || wait.Value.String() != wait.NoOptDefVal || len(args) <= least {
		return nil
	}
	for _, arg := range args[least:] {
		if slices.Contains(waitings, arg) {
			return croft.Errorf(croft.Invalid, "--wait %s: write --wait=%s", arg, arg)
		}
	}
	return nil
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

// interrupted says what goes on after somebody has interrupted a command.
type interrupted struct{ text string }

func (i *interrupted) Error() string { return i.text }

// Unwrap has it told as what interrupted commands tell.
func (*interrupted) Unwrap() error { return context.Canceled }

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
	if e, ok := errors.AsType[*exited](first); ok {
		return e.code
	}
	if croft.KindOf(first) == "" && errors.Is(first, context.DeadlineExceeded) {
		return croft.ExitUnavailable
	}
	return croft.ExitCode(first)
}
