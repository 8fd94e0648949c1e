package local

import (
	"context"
	"fmt"

	"croft"
	"croft/cluster"
)

// Resize implements cluster.Driver: it claims for new slaves, all or none, removes unwanted ones, and rebuilds those
// that failed or were lost. NoCapacity.
func (d *Driver) Resize(ctx context.Context, _ cluster.SiteAccess, b cluster.Build) error {
	r, err := d.recipe(ctx, b)
	if err != nil {
		return err
	}
	have, err := d.read(ctx, b)
	if err != nil {
		return err
	}
	if have.master(b) == nil {
		return croft.Errorf(croft.Conflict, "resize cluster %s: its master does not exist", b.Name)
	}
	if err := d.gather(ctx, r, withResize); err != nil {
		return fmt.Errorf("resize cluster %s: %w", b.Name, err)
	}
	if err := d.destroy(ctx, b, have.extra(b)); err != nil {
		return err
	}
	return d.mend(ctx, r, have)
}

// mend rebuilds wanted slaves that failed or were lost.
func (d *Driver) mend(ctx context.Context, r *recipe, have roll) error {
	l := d.look(ctx, r.build, have, r.Ready)
	var broken []member
	for _, m := range wanted(r.build)[1:] {
		if p := l.at[m.id]; p == failed || p == lost {
			broken = append(broken, m)
		}
	}
	return each(broken, func(m member) error {
		_, err := d.Scheduler.ForCluster(r.build.Cluster).Rebuild(ctx, r.build.Project, string(m.id))
		return err
	})
}

// Destroy implements cluster.Driver. It destroys the master first: without the master, nothing more is ordered.
func (d *Driver) Destroy(ctx context.Context, _ cluster.SiteAccess, b cluster.Build) error {
	have, err := d.read(ctx, b)
	if err != nil {
		return err
	}
	if master := have.master(b); master != nil {
		if err := d.destroy(ctx, b, []*croft.Status{master}); err != nil {
			return err
		}
	}
	var rest []*croft.Status
	for _, st := range have {
		rest = append(rest, st)
	}
	return d.destroy(ctx, b, rest)
}

// destroy orders the removal of members, or releases their holds.
func (d *Driver) destroy(ctx context.Context, b cluster.Build, all []*croft.Status) error {
	return each(all, func(st *croft.Status) error {
		if st.Instance.State == croft.StateDestroying {
			return nil
		}
		_, err := d.Scheduler.ForCluster(b.Cluster).Destroy(ctx, st.Instance.Project, string(st.Instance.ID), false)
		if croft.KindOf(err) == croft.NotFound {
			return nil
		}
		return err
	})
}
