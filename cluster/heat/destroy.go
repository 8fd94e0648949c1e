package heat

import (
	"context"
	"slices"

	"github.com/gophercloud/gophercloud/v2/openstack/orchestration/v1/stacks"

	"croft"
	"croft/cluster"
)

// Destroy implements cluster.Driver. It deletes all stacks of the cluster. If none exists although the site was asked
// for one, a request whose answer was lost may still be in progress. Destroy then creates an empty stack under the
// name, which makes Heat reject the late request, or shows that the request came first. Observe reports Removing for
// the empty stack for as long as a request can take, then Stuck, and the next Destroy deletes it. If Heat refuses the
// empty stack because the project has its maximum of stacks, the removal ends once that has lasted as long as a request
// can take. The sweep finds a stack that is created even later.
func (d *Driver) Destroy(ctx context.Context, at cluster.SiteAccess, b cluster.Build) error {
	a, err := d.connect(ctx, at)
	if err != nil {
		return err
	}
	if err := a.sees(b); err != nil {
		return err
	}
	all, err := a.list(ctx, clusterTag(b.Cluster))
	if err != nil {
		return err
	}
	targets := d.targets(all, b)
	if len(targets) == 0 && b.Remote.ID == "" && b.Remote.Asked {
		return d.settle(ctx, a, b)
	}
	for _, st := range targets {
		if err := d.remove(ctx, a, st.Name, st.ID); err != nil {
			return err
		}
	}
	return nil
}

// targets returns the stacks of a cluster that have to be deleted.
func (d *Driver) targets(all []stacks.ListedStack, b cluster.Build) []stacks.ListedStack {
	all = slices.DeleteFunc(all, func(st stacks.ListedStack) bool { return !isOf(st, b) })
	known := func(st stacks.ListedStack) bool { return st.ID == b.Remote.ID }
	if b.Remote.ID != "" && !slices.ContainsFunc(all, known) {
		all = append(all, stacks.ListedStack{Name: nameOf(b), ID: b.Remote.ID})
	}
	// If only the empty stack is left, it stays until no late request can arrive any more.
	if len(all) == 1 && isMarker(all[0].Tags) && d.held(all[0].ID) < d.config.Settle {
		return nil
	}
	return all
}

// remove deletes a stack. Heat's older engine shows the previous status for some time; from now on the stack counts as
// being removed.
func (d *Driver) remove(ctx context.Context, a *api, name, id string) error {
	d.forget(id)
	if err := a.delete(ctx, name, id); err != nil {
		return a.explain("delete the stack", err)
	}
	remember(&d.memory, d.removing, id, true)
	return nil
}

// nothing is the template of an empty stack, which only reserves a name.
const nothing = "heat_template_version: 2013-05-23\nresources: {}\n"

// settle finds out whether a launch whose answer was lost takes effect, by reserving its name.
func (d *Driver) settle(ctx context.Context, a *api, b cluster.Build) error {
	err := a.create(ctx, raw{"stack_name": nameOf(b), "template": nothing, "tags": tagsOf(b, holding),
		"disable_rollback": true, "timeout_mins": 5})
	if err == nil {
		return nil // reserved; Observe reports for how long
	}
	if !taken(err) {
		err = a.explain("hold the name of the stack", err)
		if kind := croft.KindOf(err); kind == croft.NoCapacity || kind == croft.Invalid {
			if d.held("refused "+nameOf(b)) >= d.config.Settle {
				return nil // for as long as a late request can take, Heat had no stack and accepted none
			}
			err = croft.Errorf(croft.Unavailable, "%w", err)
		}
		return err
	}
	// The launch came first. Otherwise the name belongs to a foreign stack, and the launch cannot succeed.
	all, err := a.list(ctx, clusterTag(b.Cluster))
	if err != nil {
		return err
	}
	for _, st := range d.targets(all, b) {
		if err := d.remove(ctx, a, st.Name, st.ID); err != nil {
			return err
		}
	}
	return nil
}
