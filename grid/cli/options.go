package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"croft"
	"croft/grid/edit"
	"croft/grid/place"
	"croft/grid/state"
	"croft/internal/command"
	"croft/internal/nearest"
	"croft/internal/out"
)

// The exit codes other than 0 (done, or nothing to do) and 1 (an error).
const (
	ExitPending       = 2 // a plan has changes
	ExitRefused       = 3 // because of a lock, or a node's revision
	ExitPartly        = 4 // applied to some nodes only
	ExitUnsatisfiable = 5 // a job needs more nodes than it can have
)

// exit gives an error a special exit code. A nil error prints nothing.
func exit(code int, err error) error { return &command.Exited{Code: code, Err: err} }

// options are the options of every command here.
type options struct {
	dir    string
	output string
}

// formats defines the flag -o of commands that list.
func (o *options) formats(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.output, "output", "o", out.FormatText, "print text, json or yaml (`format`)")
}

// data reports whether the results are for programs. It returns an error for an unknown format.
func (o *options) data() (bool, error) {
	if !slices.Contains([]string{out.FormatText, out.FormatJSON, out.FormatYAML}, o.output) {
		return false, croft.Errorf(croft.Invalid, "output %q is not one of text, json and yaml", o.output)
	}
	return o.output != out.FormatText, nil
}

// load reads the cluster's directory. Every mistake in it is an error.
func (o *options) load(cmd *cobra.Command) (*state.State, error) {
	return state.Load(cmd.Context(), o.dir)
}

// change reads the cluster's directory and changes it, while no other command does.
func (o *options) change(cmd *cobra.Command, do func(*state.State) error) error {
	return o.locked(func() error {
		s, err := o.load(cmd)
		if err != nil {
			return err
		}
		return do(s)
	})
}

// locked calls do while no other command changes the directory.
func (o *options) locked(do func() error) (err error) {
	lock, err := edit.Lock(o.dir)
	if errors.Is(err, croft.Conflict) {
		return exit(ExitRefused, err)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	return do()
}

// say prints messages, separately from the results.
func say(cmd *cobra.Command, format string, values ...any) {
	fmt.Fprintln(cmd.ErrOrStderr(), command.Names.Replace(fmt.Sprintf(format, values...)))
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

// trimmed returns a name without the directory and the suffix of its file.
func trimmed(name, dir string) string {
	return strings.TrimSuffix(strings.TrimPrefix(name, dir), ".yaml")
}

func missing(what, name string, names []string) error {
	return croft.Errorf(croft.NotFound, "there is no %s %s%s", what, name, nearest.Hint(name, names))
}

// trial holds the flags of commands that try a policy.
type trial struct {
	job      string
	replicas int
	ceph     bool
}

func (t *trial) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&t.job, "job", "", "as for this job: its facts, what it uses, its input and its replicas (`name`)")
	f.IntVarP(&t.replicas, "replicas", "n", 0, "how many nodes (`number`; the job's, or 3)")
	f.BoolVar(&t.ceph, "ceph", false, "in one pass that may give a node twice, as a rule of Ceph does")
}

// open returns the trial of a policy; an empty text means the job's policy.
func (t *trial) open(s *state.State, text string) (*place.Trial, error) {
	if t.replicas < 0 || t.replicas > state.MaxReplicas {
		return nil, croft.Errorf(croft.Invalid, "--replicas %d: give 1 to %d", t.replicas, state.MaxReplicas)
	}
	var j *state.Job
	if t.job != "" {
		var err error
		if j, err = findJob(s, t.job); err != nil {
			return nil, err
		}
	} else if text == "" {
		return nil, croft.Errorf(croft.Invalid, "give a policy, or a job that has one with --job")
	}
	if t.replicas == 0 {
		t.replicas = 3
		if j != nil {
			t.replicas = j.Want
		}
	}
	return place.NewTrial(s, j, text)
}
