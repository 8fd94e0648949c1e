package instances

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/internal/command"
	"croft/internal/out"
	"croft/schedule"
	"croft/tenant"
)

// mostSentences limits the number of sentences of a kind that are printed about many instances.
const mostSentences = 10

// viewFrom is the number of requests from which it is cheaper to read all hosts once and watch them than to read eight
// hosts for each request.
const viewFrom = 200

// outcome is the result of one request.
type outcome struct {
	decision schedule.Decision
	err      error
}

// harvest collects the outcomes of a command's requests. It keeps only the identity of an instance, and only if that
// will be needed.
type harvest struct {
	keep      bool
	scheduled int
	instances []croft.Instance
	refused   []error // the first errors that concern one instance
	more      int     // number of further errors
	why       error   // error that applies to all remaining instances
}

// add records an outcome. It returns false if the remaining requests would fail in the same way.
func (h *harvest) add(o outcome) bool {
	switch {
	case o.err == nil:
		h.scheduled++
		if h.keep {
			inst := o.decision.Instance
			inst.Spec = croft.Spec{}
			h.instances = append(h.instances, inst)
		}
		return true
	case errors.Is(o.err, croft.Conflict): // its name is taken, or other requests claimed faster
		if len(h.refused) < mostSentences {
			h.refused = append(h.refused, o.err)
		} else {
			h.more++
		}
		return true
	case h.why == nil:
		h.why = o.err
	}
	return false
}

// request requests all instances, many at once, prints the outcomes in order, and waits for the scheduled instances.
func (c *session) request(ctx context.Context, cmd *cobra.Command, wanted requests) error {
	if wanted.count >= viewFrom {
		defer c.Prepare(ctx)()
	}
	text := c.Settings.Output == out.FormatText
	h := harvest{keep: wanted.allOrNone || c.Settings.Wait.Any() || !text}
	inOrder(ctx, wanted.count, atOnce, func(i int) outcome { return c.ask(ctx, wanted.nth(i)) }, func(o outcome) bool {
		if text && o.err == nil && !wanted.allOrNone {
			printDecision(cmd, o.decision)
		}
		return h.add(o)
	})
	if err := ctx.Err(); err != nil && h.scheduled < wanted.count && wanted.count > 1 {
		h.why = err // even if interrupted requests reported other errors
	}
	if wanted.allOrNone && h.scheduled < wanted.count {
		return c.giveBack(ctx, cmd, wanted, &h)
	}
	if text && wanted.allOrNone {
		for _, inst := range h.instances {
			printDecision(cmd, schedule.Decision{Instance: inst, Host: croft.Host{ID: inst.Host}})
		}
	}
	if h.scheduled > 0 {
		args.WarnKeyless(cmd.ErrOrStderr(), c.Settings.Keys, wanted.one.Keys, wanted.one.UserData)
	}
	errs := []error{c.shortfall(cmd, wanted, &h)}
	if c.Settings.Wait.Any() && wanted.one.Hold == 0 {
		errs = append(errs, c.waitForNew(ctx, cmd, h.instances, wanted.allOrNone))
	}
	if !text && len(h.instances) > 0 {
		errs = append(errs, c.printInstances(ctx, cmd, h.instances, wanted.count > 1))
	}
	return errors.Join(errs...)
}

func (c *session) ask(ctx context.Context, r schedule.Request) (o outcome) {
	ctx, cancel := context.WithTimeout(ctx, args.AnswerTimeout)
	defer cancel()
	o.decision, o.err = c.Requests.Request(ctx, r)
	return o
}

// printDecision prints the line that scripts rely on. Tenants do not see the host.
func printDecision(cmd *cobra.Command, d schedule.Decision) {
	if d.Instance.State == croft.StateHeld {
		d.Instance.Host = d.Host.ID
		printHeld(cmd, d.Instance)
		return
	}
	fmt.Fprintf(cmd.OutOrStdout(), "NOTIFIED TARGET, %s, OF INSTANCE %s\n", cmp.Or(d.Host.ID, "-"), d.Instance.ID)
}

// shortfall describes the instances that were not scheduled: the ones with reasons of their own individually, the
// others in one sentence.
func (c *session) shortfall(cmd *cobra.Command, wanted requests, h *harvest) error {
	if h.scheduled == wanted.count {
		return nil
	}
	if wanted.count == 1 && h.why == nil {
		return errors.Join(h.refused...)
	}
	errs := []error{c.printWhyNot(cmd, h.why, h.scheduled > 0)}
	if c.Settings.Output == out.FormatText && errors.Is(h.why, croft.NoCapacity) {
		fmt.Fprintln(cmd.OutOrStdout(), "NO ALLOCATIONS LEFT")
	}
	if wanted.count == 1 {
		return errors.Join(append(errs, h.why)...)
	}
	errs = append(errs, h.refused...)
	if h.more > 0 {
		errs = append(errs, croft.Errorf(croft.Conflict, "and %d more were refused like this", h.more))
	}
	switch why := cause(h.why); {
	case h.why == nil:
		fmt.Fprintf(cmd.ErrOrStderr(), "%d of %d instances are scheduled\n", h.scheduled, wanted.count)
	case errors.Is(h.why, context.Canceled):
		errs = append(errs,
			&command.Interrupted{Text: fmt.Sprintf("%d of %d instances are scheduled; they go on: `schedule "+
				"list` shows them, "+
				"`schedule remove` ends them", h.scheduled, wanted.count)})
	default:
		errs = append(errs, croft.Errorf(croft.KindOf(h.why),
			"%d of %d instances are scheduled, the others are not: %w",
			h.scheduled, wanted.count, why))
	}
	return errors.Join(errs...)
}

// cause returns why an instance was not scheduled, without its name, if the reason applies to all instances.
func cause(why error) error {
	if e, ok := errors.AsType[*tenant.Refusal](why); ok {
		return e
	}
	if e, ok := errors.AsType[*schedule.Explanation](why); ok {
		return e
	}
	return why
}

// giveBack destroys the scheduled instances of an all-or-nothing request, and explains why some were not scheduled. It
// works even after an interruption.
func (c *session) giveBack(ctx context.Context, cmd *cobra.Command, wanted requests, h *harvest) error {
	had := h.scheduled
	left := c.remove(ctx, h.instances)
	h.scheduled, h.instances = 0, nil
	errs := []error{c.shortfall(cmd, wanted, h), left}
	if left == nil && had > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "there was room for %d of %d instances, which are given back\n", had,
			wanted.count)
	}
	return errors.Join(errs...)
}

// waitForNew waits until the instances run. It destroys failed instances, so that a failed command leaves nothing
// behind, and with allOrNone all instances. Instances that take too long continue.
func (c *session) waitForNew(ctx context.Context, cmd *cobra.Command, instances []croft.Instance,
	allOrNone bool) error {
	errs := c.wait(ctx, cmd, instances, c.Settings.Wait.Goal())
	var failed, well []croft.Instance
	var of []int // errors of the failed instances
	for i, err := range errs {
		inst := instances[i]
		if _, ok := errors.AsType[*schedule.Failure](err); ok {
			failed, of = append(failed, inst), append(of, i)
			continue
		}
		well = append(well, inst)
		switch ends := fmt.Sprintf("`schedule %s` shows it, `schedule remove %s` ends it", inst.Name, inst.Name); {
		case errors.Is(err, context.Canceled):
			errs[i] = &command.Interrupted{Text: fmt.Sprintf("instance %s goes on: %s", inst.Name, ends)}
		case errors.Is(err, croft.Unavailable):
			errs[i] = croft.Errorf(croft.Unavailable, "%w; it goes on: %s", err, ends)
		}
	}
	forEach(len(failed), atOnce, func(i int) error {
		errs[of[i]] = fmt.Errorf("%w; it was removed%s", errs[of[i]], c.keepConsole(ctx, failed[i]))
		return nil
	})
	errs = append(brief(errs), c.remove(ctx, failed))
	if allOrNone && len(failed) > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "%d of %d instances failed, and the others are given back\n", len(failed),
			len(instances))
		errs = append(errs, c.remove(ctx, well))
	}
	return errors.Join(errs...)
}

// brief keeps only the first sentences about many instances, and adds the number of the others.
func brief(errs []error) []error {
	var some []error
	more := 0
	for _, err := range errs {
		switch {
		case err == nil:
		case len(some) < mostSentences:
			some = append(some, err)
		default:
			more++
		}
	}
	if more > 0 {
		some = append(some, fmt.Errorf("and the same for %d more; `schedule list` shows those that are left", more))
	}
	return some
}

// remove destroys instances, and waits for a limited time until they are gone.
func (c *session) remove(ctx context.Context, instances []croft.Instance) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removalTimeout)
	defer cancel()
	return errors.Join(brief(forEach(len(instances), atOnce, func(i int) error {
		inst := instances[i]
		if _, err := c.Changes.Destroy(ctx, inst.Project, string(inst.ID), false); err != nil {
			return fmt.Errorf("remove what is left of it: %w", err)
		}
		return c.Instances.Wait(ctx, inst, schedule.Gone, nil)
	}))...)
}

// printInstances prints the current state of the instances in full.
func (c *session) printInstances(ctx context.Context, cmd *cobra.Command, instances []croft.Instance, list bool) error {
	var all []croft.Status
	for _, inst := range instances {
		st, err := c.Instance(ctx, string(inst.ID))
		if errors.Is(err, croft.NotFound) {
			continue // it failed and was destroyed
		}
		if err != nil {
			return err
		}
		all = append(all, st)
	}
	if len(all) == 0 {
		return nil
	}
	return printStatuses(cmd, cmp.Or(c.Settings.Output, out.FormatText), all, list)
}

// removalTimeout limits the time to wait for the removal of a failed instance.
const removalTimeout = 30 * time.Second
