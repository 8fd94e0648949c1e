package ip

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"croft"
	"croft/grid/ipam"
	"croft/internal/command"
	"croft/internal/out"
)

// ExitRefused is the exit code for a lock that another process does not release.
const ExitRefused = 3

// options are the options of every command here.
type options struct {
	dir    string
	output string
}

// formats defines the flag -o of a command.
func (o *options) formats(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.output, "output", "o", out.FormatText, "print text, json or yaml (`format`)")
	command.CompleteFlag(cmd, "output", []string{out.FormatText, out.FormatJSON, out.FormatYAML})
}

// print prints a result: as data, or else as the text that the function writes.
func (o *options) print(cmd *cobra.Command, value any, text func() error) error {
	if o.output == out.FormatText {
		return text()
	}
	return out.PrintData(cmd.OutOrStdout(), o.output, value)
}

func (o *options) checkFormat() error {
	if o.output != "" && !slices.Contains([]string{out.FormatText, out.FormatJSON, out.FormatYAML}, o.output) {
		return croft.Errorf(croft.Invalid, "output %q is not one of text, json and yaml", o.output)
	}
	return nil
}

// read calls use with the contents of the directory, and prints its notes.
func (o *options) read(cmd *cobra.Command, use func(n *ipam.Net) error) error {
	return o.with(func(d *ipam.Dir) error {
		n, err := d.Read()
		if err != nil {
			return err
		}
		err = use(n)
		tellNotes(cmd, n)
		return err
	})
}

// change does the same as read, for functions that change something.
func (o *options) change(cmd *cobra.Command, use func(n *ipam.Net) error) error {
	return o.with(func(d *ipam.Dir) error {
		err := d.Change(cmd.Context(), func(n *ipam.Net) error {
			err := use(n)
			tellNotes(cmd, n)
			return err
		})
		if errors.Is(err, ipam.ErrLocked) {
			return &command.Exited{Code: ExitRefused, Err: err}
		}
		return err
	})
}

func (o *options) with(use func(d *ipam.Dir) error) error {
	if err := o.checkFormat(); err != nil {
		return err
	}
	d, err := ipam.Open(o.dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return use(d)
}

func tellNotes(cmd *cobra.Command, n *ipam.Net) {
	slices.Sort(n.Notes)
	for _, note := range slices.Compact(n.Notes) {
		fmt.Fprintln(cmd.ErrOrStderr(), "note:", note)
	}
}

// indented writes lines with two spaces before them.
type indented struct{ to io.Writer }

// Write implements io.Writer.
func (w indented) Write(p []byte) (int, error) {
	text := "  " + strings.ReplaceAll(strings.TrimSuffix(string(p), "\n"), "\n", "\n  ") + "\n"
	_, err := io.WriteString(w.to, text)
	return len(p), err
}

func yesNo(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}
