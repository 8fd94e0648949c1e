package heat

import (
	"context"
	"slices"

	"github.com/gophercloud/gophercloud/v2/openstack/orchestration/v1/stacks"

	"croft"
	"croft/cluster"
)

// Destroy implements cluster.Driver. All stacks of the cluster are deleted. If there is none although the site was
// asked for one, a request may be under way whose answer was lost. Then an empty stack takes the name, which turns the
// request away or shows that it came first; Observe says Removing of it for as long as a request can take, then Stuck,
// and the next Destroy deletes it. Where Heat refuses the empty stack too, since the project may have no more stacks,
// the removal ends once that has been so for as long as a request can take. What comes later yet is found by the sweep.
func (d *Driver) Destroy(ctx context.Context, at cluster.Access, b cluster.Build) error {
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

// targets returns what there is to delete of a cluster.
func (d *Driver) targets(all []stacks.ListedStack, b cluster.Build) []stacks.ListedStack {
	all = slices.DeleteFunc(all, func(st stacks.ListedStack) bool { return !isOf(st, b) })
	known := func(st stacks.ListedStack) bool { return st.ID == b.Remote.ID }
	if b.Remote.ID != "" && !slices.ContainsFunc(all, known) {
		all = append(all, stacks.ListedStack{Name: nameOf(b), ID: b.Remote.ID})
	}
	// A name stays held until late requests are over, if nothing else of the cluster is left.
	if len(all) == 1 && isMarker(all[0].Tags) && d.held(all[0].ID) < d.config.Settle {
		return nil
	}
	return all
}

// remove deletes a stack. The older engine shows what the stack was doing for some time more; from now on that counts
// as being removed.
func (d *Driver) remove(ctx context.Context, a *api, name, id string) error {
	d.forget(id)
	if err := a.delete(ctx, name, id); err != nil {
		return a.explain("delete the stack", err)
	}
	remember(&d.memory, d.removing, id, true)
	return nil
}

// nothing is the template of a stack that only has a name.
const nothing = "heat_template_version: 2013-05-23\nresources: {}\n"

// settle finds out whether a launch whose answer was lost has an effect, by taking its name.
func (d *Driver) settle(ctx context.Context, a *api, b cluster.Build) error {
	err := a.create(ctx, raw{"stack_name": nameOf(b), "template": nothing, "tags": tagsOf(b, holding),
		"disable_rollback": true, "timeout_mins": 5})
	if err == nil {
		return nil // held; Observe tells how long
	}
	if !taken(err) {
		err = a.explain("hold the name of the stack", err)
		if kind := croft.KindOf(err); kind == croft.NoCapacity || kind == croft.Invalid {
			if d.held("refused "+nameOf(b)) >= d.config.Settle {
				return nil // as long as a late request can take, Heat had no stack, and took none
			}
			err = croft.Errorf(croft.Unavailable, "%w", err)
		}
		return err
	}
	// It came first, or the name is a stranger's, and then nothing of ours can come.
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
