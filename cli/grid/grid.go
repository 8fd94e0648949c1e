// Package grid has the commands for a cluster of machines that is described in a directory: croft grid, which is also
// called fission. A command is a file here, and a line in New.
package grid

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/out"
	"croft/grid/edit"
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
		Long: `A cluster is a directory: nodes/ has a file for each machine, jobs/ one for each thing
to run, alloc/ a link for each slot of a job to its node. place decides the links; no
command but those that say so touches a machine.

To begin, with this machine as the first node:

  mkdir cluster && cd cluster && git init
  croft grid init                                cluster.yaml, nodes/, jobs/
  croft grid node add here --local               nodes/here.yaml
  cat > jobs/web.yaml <<END
  image: {rootfs: /srv/web}
  command: [/bin/httpd, -f, -p, "8080"]
  replicas: 1
  END
  croft grid lint                                what is wrong, with file and line
  croft grid place                               alloc/web/0 -> ../../nodes/here.yaml
  git add -A && git commit -m "web, here"

What a directory's _.yaml says, everything below inherits: maps merge, other values
replace, key+ adds to a list, ~ deletes. ${name}, ${slot}, ${node.address}, ${var.x} and
others are put into texts; $$ is a dollar sign. jobs/front@.yaml is a template, and each
link to it an instance: ln -s front@.yaml jobs/front@7.yaml.

Exit codes: 0 done, or nothing to do; 1 an error; 2 a plan has changes; 3 refused by a
lock or a revision; 4 applied to some; 5 a job has not so many nodes as it needs.`,
		Example: `  croft grid node add syd/r1/web1 --address web1.example.org --capacity cpu=8
  croft grid show jobs/web --origin
  croft grid place --without web1 --dry-run
  croft grid rule run 'select 2 rack; take 1' --replicas 2 --trace`,
		Args: args.OnlySubcommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVarP(&o.dir, "directory", "C", ".", "the cluster's `directory`")
	cmd.AddCommand(
		initCommand(o), lintCommand(o), showCommand(o), nodeCommand(o), jobCommand(o), placeCommand(o), ruleCommand(o),
		crushCommand(o), othersCommand(o),
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

// change reads the cluster's directory and changes it, while no other command does.
func (o *options) change(cmd *cobra.Command, do func(*state.State) error) (err error) {
	lock, err := edit.Lock(o.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	s, err := o.load(cmd)
	if err != nil {
		return err
	}
	return do(s)
}

// say writes words for people, beside the results.
func say(cmd *cobra.Command, format string, values ...any) {
	fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", values...)
}

// findJob returns a job by its name, with or without jobs/ and .yaml.
func findJob(s *state.State, name string) (*state.Job, error) {
	if j := s.Job(trimmed(name, "jobs/")); j != nil {
		return j, nil
	}
	var names []string
	for _, j := range s.Jobs {
		names = append(names, j.Name)
	}
	return nil, missing("job", name, names)
}

// findNode returns a node by its name or the path of its file.
func findNode(s *state.State, name string) (*state.Node, error) {
	for _, n := range s.Leaves {
		if n.Name == name || n.Path == name || trimmed(n.Path, "nodes/") == trimmed(name, "nodes/") {
			return n, nil
		}
	}
	var names []string
	for _, n := range s.Leaves {
		names = append(names, n.Name)
	}
	return nil, missing("node", name, names)
}
