package cli

import (
	"errors"
	"fmt"
	"path"

	"github.com/spf13/cobra"

	"croft"
	"croft/grid/apply"
	"croft/grid/edit"
	"croft/grid/place"
	"croft/grid/state"
	"croft/grid/vcs"
	"croft/internal/command"
)

func drainCommand(o *options) *cobra.Command {
	var how connecting
	var now bool
	var comment string
	cmd := &cobra.Command{
		Use:   "drain NODE...",
		Short: "Move everything away from nodes",
		Long: `drain writes state: drain into the files of nodes, and places their slots elsewhere. What
runs there is stopped by the next apply, once it is ready elsewhere. If a job would have
fewer nodes than it needs, it ends with 5, and nothing is changed.

--apply commits that, pushes it if there is an upstream, and applies it.`,
		Example: `  croft grid drain web1 --comment 'new disk'
  croft grid drain web1 --apply`,
		Args: command.Count(1, -1),
		RunE: func(cmd *cobra.Command, given []string) error {
			var changed []string
			err := o.change(cmd, func(s *state.State) (err error) {
				changed, err = o.drain(cmd, s, given, comment)
				return err
			})
			if err != nil {
				return err
			}
			if !now {
				say(cmd, "commit that, and apply it")
				return nil
			}
			s, err := o.load(cmd)
			if err != nil {
				return err
			}
			repo, err := vcs.Open(o.dir, s.Cluster.VCS)
			if err != nil {
				return err
			}
			if len(changed) > 0 {
				if _, err := repo.Commit(cmd.Context(), fmt.Sprintf("drain %v", given), changed...); err != nil {
					return err
				}
			}
			head, err := repo.Upstream(cmd.Context())
			if err != nil && !errors.Is(err, croft.Conflict) {
				return err
			}
			if head != "" || err != nil { // there is an upstream, though perhaps nothing is pushed to it yet
				if err := repo.Push(cmd.Context()); err != nil {
					return err
				}
			}
			return o.apply(cmd, &how, apply.Choice{}, nil)
		},
	}
	how.flags(cmd)
	cmd.Flags().BoolVar(&now, "apply", false, "commit, push and apply it")
	cmd.Flags().StringVar(&comment, "comment", "", "a `text` to put beside the state, such as the reason")
	o.formats(cmd)
	return cmd
}

// drain changes the files, and returns their names.
func (o *options) drain(cmd *cobra.Command, s *state.State, names []string, comment string) ([]string, error) {
	var nodes []*state.Node
	var without []string
	for _, name := range names {
		n, err := findNode(s, name)
		if err != nil {
			return nil, err
		}
		nodes, without = append(nodes, n), append(without, n.Name)
	}
	if err := o.place(cmd, s, place.Options{Without: without}, false); err != nil {
		return nil, err // nothing was written yet
	}
	var changed []string
	for _, n := range nodes {
		if n.State == state.Drain {
			continue
		}
		if err := edit.SetState(s, n, state.Drain, comment); err != nil {
			return nil, err
		}
		changed = append(changed, n.Path)
	}
	s, err := o.load(cmd)
	if err != nil {
		return changed, err
	}
	r, err := place.Decide(s, place.Options{})
	if err != nil {
		return changed, err
	}
	for _, c := range r.Changes {
		changed = append(changed, path.Join("alloc", c.Job))
	}
	return changed, r.Write(o.dir)
}
