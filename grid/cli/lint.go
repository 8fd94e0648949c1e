package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"croft"
	"croft/grid/place"
	"croft/grid/state"
	"croft/internal/command"
	"croft/internal/out"
	"croft/internal/plain"
)

// lintLine is one line of lint's output.
type lintLine struct {
	File  string `json:"file,omitempty"`
	Line  int    `json:"line,omitempty"`
	Level string `json:"level"` // error, warning or unknown
	Text  string `json:"text"`
}

func lintCommand(o *options) *cobra.Command {
	var unknown bool
	cmd := &cobra.Command{
		Use:   "lint",
		Short: "Check all files",
		Long: `lint reads all files as every other command does, and tells what is wrong and what is odd,
each with file and line. It ends with 1 if anything is wrong; what is only odd, such as a
slot whose node is gone, which place mends, is printed as a warning. So is a key that is not
read and resembles one that is, such as comand.

--unknown lists all keys that are not read. They are allowed, for use in ${...} and by other
programs.`,
		Args: command.Count(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.lint(cmd, unknown) },
	}
	cmd.Flags().BoolVar(&unknown, "unknown", false, "list all keys that are not read")
	o.formats(cmd)
	return cmd
}

func (o *options) lint(cmd *cobra.Command, unknown bool) error {
	data, err := o.data()
	if err != nil {
		return err
	}
	s, err := o.load(cmd)
	var warnings []state.Problem
	if err == nil {
		warnings, err = place.Check(s)
		err = errors.Join(s.Check(cmd.Context()), err)
	}
	if s == nil && croft.KindOf(err) == croft.NotFound {
		return err // no directory, so nothing to check
	}
	list := []lintLine{}
	if s != nil {
		list = append(list, tell("warning", append(s.Warnings, warnings...))...)
		if unknown {
			list = append(list, tell("unknown", s.Unknown())...)
		} else {
			list = append(list, tell("warning", s.Mistyped())...)
		}
	}
	if data {
		for _, one := range parts(err) {
			list = append(list, toldOf(one))
		}
		if printed := out.PrintData(cmd.OutOrStdout(), o.output, list); printed != nil {
			return printed
		}
		if err != nil {
			return exit(croft.ExitFailure, nil)
		}
		return nil
	}
	for _, one := range list {
		at := state.Position{File: one.File, Line: one.Line}
		fmt.Fprintf(cmd.OutOrStdout(), "%s: %s: %s\n", at, one.Level, plain.Line(command.Names.Replace(one.Text)))
	}
	return err
}

func tell(level string, list []state.Problem) (all []lintLine) {
	for _, p := range list {
		all = append(all, lintLine{p.At.File, p.At.Line, level, p.Text})
	}
	return all
}

// parts returns the joined errors.
func parts(err error) (all []error) {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // a wrapped one is one sentence
		for _, one := range joined.Unwrap() {
			all = append(all, parts(one)...)
		}
		return all
	}
	return []error{err}
}

func toldOf(err error) lintLine {
	if p, ok := errors.AsType[state.Problem](err); ok {
		return lintLine{p.At.File, p.At.Line, "error", p.Text}
	}
	return lintLine{Level: "error", Text: err.Error()}
}
