// Package grid has the commands for a cluster of machines that is described in a directory: croft grid, which is also
// called fission. A command is a file here, and a line in New.
package grid

import (
	"slices"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/out"
	"croft/grid/state"
)

// The exit codes beside 0, done or nothing to do, and 1, an error.
const (
	ExitPending       = 2 // a plan has changes
	ExitRefused       = 3 // by a lock, or by the revision that a node has
	ExitPartly        = 4 // applied to some
	ExitUnsatisfiable = 5 // a job has not so many nodes as it needs
)

// exit gives an error an exit code of its own. A nil error prints nothing.
func exit(code int, err error) error { return &args.Exited{Code: code, Err: err} }

// options are those of every command here.
type options struct {
	dir    string
	output string
}

// New makes the command croft grid.
func New() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "grid",
		Short: "Run jobs on machines, as a directory under version control describes",
		Args:  args.OnlySubcommands,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVarP(&o.dir, "directory", "C", ".", "the cluster's `directory`")
	cmd.AddCommand(
		lintCommand(o),
	)
	args.OneForErrors(cmd)
	return cmd
}

// formats defines the flag -o of a command that lists.
func (o *options) formats(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.output, "output", "o", out.FormatText, "print text, json or yaml (`format`)")
}

// data reports whether the results are for programs, and refuses formats that there are not.
func (o *options) data() (bool, error) {
	if !slices.Contains([]string{out.FormatText, out.FormatJSON, out.FormatYAML}, o.output) {
		return false, croft.Errorf(croft.Invalid, "output %q is not one of text, json and yaml", o.output)
	}
	return o.output != out.FormatText, nil
}

// load reads the cluster's directory. Everything that is wrong in it is an error.
func (o *options) load(cmd *cobra.Command) (*state.State, error) {
	return state.Load(cmd.Context(), o.dir)
}
