package heat

import (
	"context"
	"slices"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/orchestration/v1/stacks"

	"croft"
	"croft/cluster"
)

// Destroy implements cluster.Driver. All stacks of the cluster are deleted. If there is none although the site was
// asked for one, a request may be under way whose answer was lost. Then an empty stack takes the name, which turns the
// request away or shows that it came first; Observe says Removing of it for as long as a request can take, then Stuck,
// and the next Destroy deletes it. What comes later yet is found by the sweep.
func (d *Driver) Destroy(ctx context.Context, at cluster.Access, b cluster.Build) error {
	s, client, err := d.connect(ctx, at)
	if err != nil {
		return err
	}
	if err := s.sees(b); err != nil {
		return err
	}
	all, err := d.list(ctx, s, client, clusterTag(b.Cluster))
	if err != nil {
		return err
	}
	targets := d.targets(all, b)
	if len(targets) == 0 && b.Remote.ID == "" && b.Remote.Asked {
		return d.settle(ctx, s, client, b)
	}
	for _, st := range targets {
		if err := d.remove(ctx, s, client, st.Name, st.ID); err != nil {
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
	if len(all) == 1 && isMarker(all[0].Tags) && d.held(all[0].ID) < d.c.Settle {
		return nil
	}
	return all
}

// remove deletes a stack. The older engine shows what the stack was doing for some time more; from now on that counts
// as being removed.
func (d *Driver) remove(ctx context.Context, s *session, client *gophercloud.ServiceClient, name, id string) error {
	d.forget(id)
	if err := d.delete(ctx, client, name, id); err != nil {
		return s.explain("delete the stack", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.removing) > mostDetails {
		clear(d.removing)
	}
	d.removing[id] = true
	return nil
}

// phase is how far a stack is, where a removal that was taken counts from the start.
func (d *Driver) phase(st stacks.ListedStack) cluster.Phase {
	p := phase(st.Status)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.removing[st.ID] && p != cluster.Absent && p != cluster.Stuck {
		return cluster.Removing
	}
	return p
}

// delete deletes a stack that may be gone.
func (d *Driver) delete(ctx context.Context, client *gophercloud.ServiceClient, name, id string) error {
	ctx, cancel := d.brief(ctx)
	defer cancel()
	return ignoreMissing(stacks.Delete(ctx, client, name, id).ExtractErr())
}

func ignoreMissing(err error) error {
	if missing(err) {
		return nil
	}
	return err
}

// nothing is the template of a stack that only has a name.
const nothing = "heat_template_version: 2013-05-23\nresources: {}\n"

// settle finds out whether a launch whose answer was lost has an effect, by taking its name.
func (d *Driver) settle(ctx context.Context, s *session, client *gophercloud.ServiceClient, b cluster.Build) error {
	err := d.create(ctx, client, raw{"stack_name": nameOf(b), "template": nothing, "tags": tagsOf(b, holding),
		"disable_rollback": true, "timeout_mins": 5})
	if err == nil {
		return nil // held; Observe tells how long
	}
	if !taken(err) {
		err = s.explain("hold the name of the stack", err)
		if kind := croft.KindOf(err); kind == croft.NoCapacity || kind == croft.Invalid {
			err = croft.Errorf(croft.Unavailable, "%w", err) // another time it can
		}
		return err
	}
	// It came first, or the name is a stranger's, and then nothing of ours can come.
	all, err := d.list(ctx, s, client, clusterTag(b.Cluster))
	if err != nil {
		return err
	}
	for _, st := range d.targets(all, b) {
		if err := d.remove(ctx, s, client, st.Name, st.ID); err != nil {
			return err
		}
	}
	return nil
}

// held returns for how long an empty stack has been seen to hold a name. The clock of the site may be wrong, so it is
// ours: after a restart the time begins anew.
func (d *Driver) held(id string) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	since, seen := d.markers[id]
	if !seen {
		since = time.Now()
		d.markers[id] = since
	}
	return time.Since(since)
}

// forget forgets what is known of a stack that is about to change.
func (d *Driver) forget(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.details, id)
}
