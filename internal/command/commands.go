// Package command implements the conventions of all command lines of this repository: counts of arguments, hints for
// mistyped words and flags, prompts, output formats, and errors with their own exit code. It does not depend on a
// cloud.
package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"croft"
	"croft/internal/nearest"
)

// OnlySubcommands refuses the arguments of a command that only has subcommands.
func OnlySubcommands(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	if meant := similar(cmd, args[0]); meant != "" {
		hint = fmt.Sprintf("; did you mean %q?", meant)
	}
	return croft.Errorf(croft.Invalid, "%s has no command %q%s", cmd.CommandPath(), args[0], hint)
}

// otherWords maps other programs' names of commands to names below schedule.
var otherWords = map[string]string{
	"exec": "ssh", "run": "ssh", "login": "ssh", "kill": "remove", "ps": "list",
	"restart": "reboot", "log": "logs", "describe": "show", "get": "show", "info": "show", "status": "show",
}

// UnknownCommand is the error for a word that is not a command of cmd. Invalid.
func UnknownCommand(cmd *cobra.Command, word string) error {
	return croft.Errorf(croft.Invalid, "there is no command %q%s", word, CommandHint(cmd, word))
}

// CommandHint suggests a command similar to a word; empty: no command is similar.
func CommandHint(cmd *cobra.Command, word string) string {
	if meant := similar(cmd, word); meant != "" {
		return fmt.Sprintf("; did you mean %q?", meant)
	}
	if word == "version" {
		return fmt.Sprintf("; did you mean \"%s --version\"?", cmd.CommandPath())
	}
	for _, sub := range append(cmd.Commands(), cmd) {
		if sub.Name() != "schedule" {
			continue
		}
		if meant := cmp.Or(otherWords[word], similar(sub, word)); meant != "" {
			return fmt.Sprintf("; did you mean \"%s %s\"?", sub.CommandPath(), meant)
		}
	}
	return ""
}

// similar returns the name of the subcommand whose name or alias is similar to a word; empty: no subcommand is similar.
func similar(cmd *cobra.Command, word string) string {
	words := Subcommands(cmd)
	for _, sub := range cmd.Commands() {
		words = append(words, sub.Aliases...)
	}
	meant := nearest.Word(word, words)
	for _, sub := range cmd.Commands() {
		if sub.HasAlias(meant) {
			return sub.Name()
		}
	}
	return meant
}

// Subcommands returns the names of the subcommands of cmd.
func Subcommands(cmd *cobra.Command) []string {
	var all []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			all = append(all, sub.Name())
		}
	}
	return all
}

// Count accepts least to most arguments; most is -1 for any number.
func Count(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := strayValue(cmd, args, least); err != nil {
			return err
		}
		if len(args) < least || most >= 0 && len(args) > most {
			return croft.Errorf(croft.Invalid, "usage: %s", cmd.UseLine())
		}
		return nil
	}
}

// AtMostOne returns an error if more than one of the flags is given. Cobra's own groups of flags end with the exit code
// of a failure.
func AtMostOne(cmd *cobra.Command, names ...string) error {
	var given []string
	for _, name := range names {
		if cmd.Flags().Changed(name) {
			given = append(given, "--"+name)
		}
	}
	if len(given) > 1 {
		return croft.Errorf(croft.Invalid, "%s cannot be given together: give one of them",
			strings.Join(given, " and "))
	}
	return nil
}

// optionalValues is the annotation of flags whose value is optional. It lists the values.
const optionalValues = "croft-optional-values"

// OptionalValue makes the value of a flag optional: the flag without a value stands for otherwise, which is one of
// values. Count refuses a value that follows the flag without =, which pflag treats as an argument.
func OptionalValue(flag *pflag.Flag, otherwise string, values []string) {
	flag.NoOptDefVal = otherwise
	if flag.Annotations == nil {
		flag.Annotations = map[string][]string{}
	}
	flag.Annotations[optionalValues] = values
}

// strayValue refuses arguments that are meant as the values of flags whose value is optional.
func strayValue(cmd *cobra.Command, args []string, least int) (err error) {
	if len(args) <= least {
		return nil
	}
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		values := flag.Annotations[optionalValues]
		if flag.Value.String() != flag.NoOptDefVal || err != nil {
			return
		}
		for _, arg := range args[least:] {
			if slices.Contains(values, arg) {
				err = croft.Errorf(croft.Invalid, "--%s %s: write --%s=%s", flag.Name, arg, flag.Name, arg)
				return
			}
		}
	})
	return err
}

// AllFlags returns the flags of a command, its own and inherited ones.
func AllFlags(cmd *cobra.Command) iter.Seq[*pflag.Flag] {
	return func(yield func(*pflag.Flag) bool) {
		more := true
		cmd.Flags().VisitAll(func(f *pflag.Flag) { more = more && yield(f) })
	}
}

// FlagError returns the error for a wrong flag, and suggests a similar one.
func FlagError(cmd *cobra.Command, err error) error {
	words := cmd.Flags().Args()
	_, takes, _ := strings.Cut(cmd.Use, " ")
	if takes == "" && cmd.HasSubCommands() && len(words) > 0 && cmd.Args != nil {
		if err := cmd.Args(cmd, words); err != nil {
			return err // the flag belongs to a command that does not exist
		}
	}
	if missing, ok := errors.AsType[*pflag.NotExistError](err); ok {
		return unknownFlag(cmd, missing)
	}
	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		want := map[string]string{
			"duration": "a duration such as 30s, 5m or 7d", "int": "a whole number", "int64": "a whole number",
			"uint16":  "a port",
			"float64": "a number", "bool": "true or false",
		}[wrong.GetFlag().Value.Type()]
		if want != "" {
			return croft.Errorf(croft.Invalid, "--%s: want %s, not %q", wrong.GetFlag().Name, want, wrong.GetValue())
		}
	}
	return croft.Errorf(croft.Invalid, "%w; see %s --help", err, cmd.CommandPath())
}

// unknownFlag is the error for a flag that does not exist: --name, -n, or -name with one dash too few.
func unknownFlag(cmd *cobra.Command, missing *pflag.NotExistError) error {
	var flags []string
	for flag := range AllFlags(cmd) {
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

// Interrupted is the error of an interrupted command; Text names what continues without it.
type Interrupted struct{ Text string }

func (i *Interrupted) Error() string { return i.Text }

// Unwrap makes the error count as an interruption.
func (*Interrupted) Unwrap() error { return context.Canceled }

// Exited is an exit code independent of the error's kind.
type Exited struct {
	Code int
	Err  error // to be printed; nil: everything has been printed
}

func (e *Exited) Error() string {
	if e.Err != nil {
		return e.Err.Error()
	}
	return fmt.Sprintf("ended with exit code %d", e.Code)
}
