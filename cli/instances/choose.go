package instances

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"croft"
	"croft/cli/args"
	"croft/cli/verb"
	"croft/control/api"
	"croft/internal/command"
	"croft/internal/nearest"
	"croft/internal/out"
	"croft/internal/wording"
	"croft/pool/vm"
	"croft/schedule"
	"croft/tenant/objects"
)

// A choice selects instances of the project by what they are.
type choice struct {
	states  []string
	host    string
	tags    []string
	filters []string
}

func (s *choice) addFlags(flags *pflag.FlagSet) {
	flags.StringSliceVar(&s.states, "state", nil, "only those in these `states`, separated by commas")
	flags.StringVar(&s.host, "host", "", "only those on this host: its `name` or UUID")
	flags.StringArrayVar(&s.tags, "tag", nil,
		"only those with this tag, `key` or key=value; repeat for those with all of them")
	flags.StringArrayVar(&s.filters, "filter", nil, args.FilterUsage)
}

// given reports whether a flag was given.
func (s *choice) given() bool { return len(s.states)+len(s.host)+len(s.tags)+len(s.filters) > 0 }

// check returns an error for an unknown state, and for a filter that cannot be parsed.
func (s *choice) check() error {
	for _, word := range s.states {
		if !slices.Contains(states, word) {
			return notOneOf("state", word, states)
		}
	}
	_, err := objects.ParseFilter(s.filters)
	return err
}

// notOneOf is the error for the value of a flag that is not one of the known words.
func notOneOf(flag, word string, known []string) error {
	return croft.Errorf(croft.Invalid, "--%s %q is not one of %s%s", flag, word, strings.Join(known, ", "),
		nearest.Hint(word, known))
}

// chosen returns the instances of the project that the choice selects.
func (c *session) chosen(ctx context.Context, s choice) ([]api.Instance, error) {
	ctx, cancel := context.WithTimeout(ctx, args.AnswerTimeout)
	defer cancel()
	if s.host != "" {
		hosts, err := c.HostRecords(ctx)
		if err != nil {
			return nil, err
		}
		h, err := args.HostCalled(hosts, s.host)
		if err != nil {
			return nil, err
		}
		s.host = string(h.ID)
	}
	all, err := c.AllInstances(ctx, api.InstanceFilter{InProject: api.InProject{Project: c.Project},
		Filtered: api.Filtered{Filter: s.filters}})
	return slices.DeleteFunc(all, func(i api.Instance) bool {
		return len(s.states) > 0 && !slices.Contains(s.states, i.State) || s.host != "" && string(i.HostID) != s.host ||
			!hasTags(i.Tags, s.tags)
	}), err
}

// changeable returns the chosen instances without the machines of pools, unless the tag that marks them chooses them.
func (c *session) changeable(ctx context.Context, s choice) ([]api.Instance, error) {
	all, err := c.chosen(ctx, s)
	if slices.ContainsFunc(s.tags, func(t string) bool { return strings.HasPrefix(t, vm.Tag) }) {
		return all, err
	}
	before := len(all)
	all = slices.DeleteFunc(all, func(i api.Instance) bool { return i.Tags[vm.Tag] != "" })
	if n := before - len(all); n > 0 {
		c.Say("%s left alone: pools make and end them", wording.Count(n, "machine"))
	}
	return all, err
}

// subjects are the instances that a command changes: named ones, or chosen ones.
type subjects struct {
	choice
	yes  bool
	ends string // what the command does that cannot be undone, such as remove; empty: nothing

	// set by flags of the command
	force     bool // it changes members of clusters, too
	snapshots bool // it removes the snapshots, too
}

// addTo makes a command accept flags that choose instances instead of names.
func (s *subjects) addTo(cmd *cobra.Command) {
	s.addFlags(cmd.Flags())
	command.CompleteFlag(cmd, "state", states)
	if s.ends != "" {
		cmd.Flags().BoolVarP(&s.yes, "yes", "y", false, "do not ask: "+s.ends+" all of them")
	}
	cmd.Args = func(cmd *cobra.Command, given []string) error {
		if s.given() && len(given) > 0 {
			return croft.Errorf(croft.Invalid, "%s %s: either name instances, or choose them by --filter, --tag, --state and "+
				"--host", cmd.Name(), given[0])
		}
		if err := s.check(); err != nil {
			return err
		}
		least := 1
		if s.given() {
			least = 0
		}
		return command.Count(least, -1)(cmd, given)
	}
}

// of returns the names or UUIDs of the instances. If the command ends several, it has a person at a terminal confirm
// the list. Instances that were chosen, or named with others, are named by their UUIDs: another instance that gets the
// name meanwhile is not affected. If the command would be refused for one of several named instances, it changes none;
// left is the error about chosen instances that it leaves out for that reason.
func (s *subjects) of(ctx context.Context, c *session, given []string) (names []string, left, err error) {
	asks := s.ends != "" && !s.yes
	terminal := out.IsTerminal(c.Cmd.InOrStdin()) && out.IsTerminal(c.Cmd.ErrOrStderr())
	if !s.given() && len(given) < 2 {
		return given, nil, nil
	}
	all, left, err := s.changed(ctx, c, given)
	if err != nil {
		return nil, nil, err
	}
	for _, i := range all {
		names = append(names, string(i.ID))
	}
	action := s.ends + " " + wording.Count(len(all), "instance")
	switch {
	case len(all) == 0 && left == nil:
		hint := ""
		if len(s.choice.filters) > 0 {
			hint = ": --filter compares properties, and --tag the tags of requests"
		}
		c.Say("no instance matches, so nothing is done%s", hint)
		return nil, nil, nil
	case len(all) == 0 || !asks || !terminal && !s.given():
		return names, left, nil
	case !terminal:
		return nil, nil, croft.Errorf(croft.Invalid, "%s: nothing was done, because nobody can be asked here: look at "+
			"`schedule list` with the same flags, and add --yes", action)
	}
	t := listing{columns: briefColumns}.table(all)
	t.Color = out.IsColored(c.Cmd.ErrOrStderr())
	if err := t.Print(c.Cmd.ErrOrStderr()); err != nil {
		return nil, nil, err
	}
	if err := verb.Confirm(c.Cmd, action, action); err != nil {
		return nil, nil, err
	}
	return names, left, nil
}

// changed returns the instances that the command changes.
func (s *subjects) changed(ctx context.Context, c *session, given []string) (all []api.Instance, left, err error) {
	check, err := s.refusals(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	if !s.given() {
		all, err = c.called(ctx, given, check)
		return all, nil, err
	}
	chosen, err := c.changeable(ctx, s.choice)
	var errs []error
	for _, i := range chosen {
		if refused := check(i); refused != nil {
			errs = append(errs, fmt.Errorf("left alone: %w", refused))
			continue
		}
		all = append(all, i)
	}
	return all, errors.Join(errs...), err
}

// refusals returns a function that returns the error with which the server refuses the command for an instance.
func (s *subjects) refusals(ctx context.Context, c *session) (func(api.Instance) error, error) {
	snapshots := map[croft.InstanceID][]string{}
	remedy := "remove them first"
	if s.ends == "remove" {
		remedy += ", or add --snapshots"
	}
	if s.ends != "" && !s.snapshots {
		err := verb.Within(ctx, func(ctx context.Context) error {
			list, err := c.ListSnapshots(ctx, api.InProject{Project: c.Project})
			for _, snapshot := range list.Snapshots {
				snapshots[snapshot.Instance] = append(snapshots[snapshot.Instance], snapshot.Name)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return func(i api.Instance) error {
		inst := croft.Instance{Name: i.Name, Cluster: i.Cluster, Protected: i.Protected && s.ends != ""}
		if err := schedule.CheckUnprotected(inst); err != nil {
			return fmt.Errorf("instance %s: %w", i.Name, err)
		}
		if s.force {
			inst.Cluster = ""
		}
		if err := schedule.CheckFree(inst, s.ends == "remove"); err != nil {
			return err
		}
		return schedule.CheckSnapshotless(i.Name, snapshots[i.ID], remedy)
	}, nil
}

// called returns the instances with these names or UUIDs, each once. An error is about all that do not exist, or for
// which check has an error: the command changes nothing.
func (c *session) called(ctx context.Context, given []string, check func(api.Instance) error) ([]api.Instance, error) {
	var all []api.Instance
	var errs []error
	for _, name := range given {
		i, err := c.Instance(ctx, name)
		if err == nil {
			err = check(i)
		}
		switch {
		case err != nil:
			errs = append(errs, verb.Nothing(err))
		case !slices.ContainsFunc(all, func(other api.Instance) bool { return other.ID == i.ID }):
			all = append(all, i)
		}
	}
	return all, errors.Join(errs...)
}
