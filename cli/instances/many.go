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
	"croft/control/api"
	"croft/internal/command"
	"croft/internal/delay"
	"croft/internal/out"
	"croft/schedule"
	"croft/tenant"
	"croft/tenant/objects"
)

// mostSentences limits the number of sentences of a kind that are printed about many instances.
const mostSentences = 10

// viewFrom is the number of requests from which it is cheaper to read all hosts once and watch them than to read eight
// hosts for each request.
const viewFrom = 200

// outcome is the result of one request.
type outcome struct {
	made api.Instance
	err  error
}

// harvest collects the outcomes of a command's requests. It keeps only the identity of an instance, and only if that
// will be needed.
type harvest struct {
	keep      bool
	scheduled int
	first     api.Instance
	instances []api.Instance
	refused   []error // the first errors that concern one instance
	more      int     // number of further errors
	why       error   // error that applies to all remaining instances
}

// add records an outcome. It returns false if the remaining requests would fail in the same way.
func (h *harvest) add(o outcome) bool {
	switch {
	case o.err == nil:
		if h.scheduled++; h.scheduled == 1 {
			h.first = o.made
		}
		if h.keep {
			h.instances = append(h.instances, api.Instance{ID: o.made.ID, Project: o.made.Project, Name: o.made.Name,
				Created: o.made.Created, Expires: o.made.Expires, State: o.made.State, HostID: o.made.HostID})
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
	labels, err := c.labels(ctx, wanted.properties)
	if err != nil {
		return err
	}
	text := c.Settings.Output == out.FormatText
	h := harvest{keep: wanted.allOrNone || c.Settings.Wait.Any() || !text || labels != nil}
	inOrder(ctx, wanted.count, atOnce, func(n int) outcome { return c.ask(ctx, wanted.nth(n)) }, func(o outcome) bool {
		if text && o.err == nil && !wanted.allOrNone {
			printMade(cmd, o.made)
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
		for _, i := range h.instances {
			printMade(cmd, i)
		}
	}
	if h.scheduled > 0 {
		if text && wanted.one.Query == "" {
			fmt.Fprintf(cmd.ErrOrStderr(), "instance %s gets %s%s\n", h.first.Name, h.first.Resources,
				ofSize(h.first.Size))
		}
		args.WarnKeyless(cmd.ErrOrStderr(), c.Settings.Keys, wanted.one.Keys, wanted.one.UserData)
	}
	errs := []error{c.shortfall(cmd, wanted, &h)}
	if labels != nil {
		errs = append(errs, c.label(ctx, h.instances, labels))
	}
	if c.Settings.Wait.Any() && wanted.one.Hold == 0 {
		errs = append(errs, c.waitForNew(ctx, cmd, h.instances, wanted.allOrNone, wanted.one.Protected))
	}
	if !text && len(h.instances) > 0 {
		errs = append(errs, c.printInstances(ctx, cmd, h.instances, wanted.count > 1))
	}
	return errors.Join(errs...)
}

// labels returns the values of properties of instances; nil: there are none. Invalid.
func (c *session) labels(ctx context.Context, pairs []string) (map[string]*objects.Value, error) {
	if len(pairs) == 0 {
		return nil, nil
	}
	set, err := c.ReadProperties(ctx, objects.Instance, pairs)
	labels := map[string]*objects.Value{}
	for key, v := range set {
		labels[key] = &v
	}
	return labels, err
}

// label sets properties of instances.
func (c *session) label(ctx context.Context, all []api.Instance, labels map[string]*objects.Value) error {
	var errs []error
	for _, i := range all {
		named := c.Named(string(i.ID))
		if _, err := c.ChangeInstance(ctx, api.InstancePatch{InstanceNamed: named, Labels: labels}); err != nil {
			errs = append(errs, fmt.Errorf("instance %s is there, and its properties are not set: %w", i.Name, err))
		}
	}
	return errors.Join(errs...)
}

// repeatAfter is the pause before a request is repeated that an identical earlier one precedes.
const repeatAfter = 250 * time.Millisecond

// ask makes a request. If an identical earlier one is still being carried out, such as one whose answer was lost, it
// repeats the request until that one is done: until then the instance can still be refused.
func (c *session) ask(ctx context.Context, r api.ClaimRequest) (o outcome) {
	ctx, cancel := context.WithTimeout(ctx, args.AnswerTimeout)
	defer cancel()
	for {
		if r.Hold != 0 {
			o.made, o.err = c.CreateClaim(ctx, r)
		} else {
			in := api.NewInstance{InProject: r.InProject, InstanceRequest: r.InstanceRequest}
			o.made, o.err = c.CreateInstance(ctx, in)
		}
		if o.err != nil || o.made.State != string(croft.StateScheduling) {
			return o
		}
		if delay.For(ctx, repeatAfter) != nil {
			o.err = croft.Errorf(croft.Unavailable, "request instance %s: an identical earlier request is still being "+
				"carried out: repeat it with --uuid %s", o.made.Name, o.made.ID)
			return o
		}
	}
}

// ofSize names the size of an instance; empty: it has the amounts that are built in.
func ofSize(name string) string {
	if name == "" {
		return ", since no size is the default (croft size default)"
	}
	return " of size " + name
}

// printMade prints the line that scripts rely on. Tenants do not see the host.
func printMade(cmd *cobra.Command, i api.Instance) {
	if i.State == string(croft.StateHeld) {
		printHeld(cmd, i)
		return
	}
	fmt.Fprintf(cmd.OutOrStdout(), "NOTIFIED TARGET, %s, OF INSTANCE %s\n", cmp.Or(i.HostID, "-"), i.ID)
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
			&command.Interrupted{Text: fmt.Sprintf("%d of %d instances are scheduled, and continue: `schedule list` "+
				"shows them, `schedule remove` ends them", h.scheduled, wanted.count)})
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
// behind, and with allOrNone all instances. Instances that take too long continue, and protected ones stay.
func (c *session) waitForNew(ctx context.Context, cmd *cobra.Command, instances []api.Instance,
	allOrNone, protected bool) error {
	errs := c.wait(ctx, cmd, instances, c.Settings.Wait.Goal())
	var failed, well []api.Instance
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
	if protected {
		return errors.Join(brief(errs)...)
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
func (c *session) remove(ctx context.Context, instances []api.Instance) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removalTimeout)
	defer cancel()
	return errors.Join(brief(forEach(len(instances), atOnce, func(i int) error {
		inst := instances[i]
		in := api.InstanceRemoval{InstanceChange: api.InstanceChange{InstanceNamed: c.Named(string(inst.ID))}}
		if _, err := c.DestroyInstance(ctx, in); err != nil {
			return fmt.Errorf("remove what is left of it: %w", err)
		}
		return c.AwaitInstance(ctx, inst, schedule.Gone, nil)
	}))...)
}

// printInstances prints the current state of the instances in full.
func (c *session) printInstances(ctx context.Context, cmd *cobra.Command, instances []api.Instance, list bool) error {
	var all []api.Instance
	for _, inst := range instances {
		now, err := c.Instance(ctx, string(inst.ID))
		if errors.Is(err, croft.NotFound) {
			continue // it failed and was destroyed
		}
		if err != nil {
			return err
		}
		all = append(all, now)
	}
	if len(all) == 0 {
		return nil
	}
	return printFull(cmd, cmp.Or(c.Settings.Output, out.FormatText), all, list)
}

// removalTimeout limits the time to wait for the removal of a failed instance.
const removalTimeout = 30 * time.Second
