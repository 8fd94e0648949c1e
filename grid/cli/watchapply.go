package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"croft"
	"croft/grid/apply"
	"croft/grid/plan"
	"croft/grid/watch"
)

// watchApplier applies the commits that a watch has pushed, from the watch's own clone.
type watchApplier struct{ cmd *cobra.Command }

var _ watch.Applier = watchApplier{}

// Apply implements watch.Applier. The clone contains exactly the upstream's head.
func (a watchApplier) Apply(ctx context.Context, dir, revision string, nodes, gone []string) error {
	run := &cobra.Command{}
	run.SetContext(ctx)
	run.SetOut(a.cmd.ErrOrStderr())
	run.SetErr(a.cmd.ErrOrStderr())
	o := &options{dir: dir}
	c, err := o.reach(run, &connecting{note: ", grid watch"})
	if err != nil {
		return err
	}
	defer c.Close()
	if c.want.Revision, err = c.repo.Revision(ctx); err != nil {
		return err
	}
	if c.want.Revision != revision {
		return croft.Errorf(croft.Conflict, "the clone is at %s and not at %s", c.want.Revision, revision)
	}
	choice := apply.Choice{Options: plan.Options{Limit: nodes, Fenced: gone}, Head: revision}
	p, found, err := c.Plan(ctx, c.want, choice.Options)
	if err != nil {
		return refusal(err)
	}
	if err := c.remembered(p, found); err != nil {
		return err
	}
	if err := printPlan(run, run.ErrOrStderr(), p); err != nil {
		return err
	}
	_, err = c.Apply(ctx, c.want, p, found, choice)
	return errors.Join(err, o.storeEpochs(run, c, p))
}
