package heat

import (
	"context"
	"slices"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/orchestration/v1/stacks"

	"croft"
	"croft/cluster"
)

// Observe implements cluster.Driver with one list for all clusters, and one more request for each cluster whose stack
// changed.
func (d *Driver) Observe(ctx context.Context, at cluster.SiteAccess,
	all []cluster.Build) (map[croft.ClusterID]cluster.Seen,
	error) {
	if len(all) == 0 {
		return map[croft.ClusterID]cluster.Seen{}, nil
	}
	a, err := d.connect(ctx, at)
	if err != nil {
		return nil, err
	}
	listed, err := a.list(ctx, partitionTag(all[0].Partition))
	if err != nil {
		return nil, err
	}
	o := glimpse{Driver: d, api: a, listed: map[croft.ClusterID][]stacks.ListedStack{}}
	for _, st := range listed {
		id := clusterOf(st.Tags, all[0].Partition)
		o.listed[id] = append(o.listed[id], st)
	}
	seen := map[croft.ClusterID]cluster.Seen{}
	for _, b := range all {
		one, err := o.look(ctx, b)
		if err != nil {
			d.config.Log.Debug("a cluster cannot be observed", "cluster", b.Cluster, "err", err)
			continue
		}
		seen[b.Cluster] = one
	}
	return seen, nil
}

// glimpse is one observation of several clusters.
type glimpse struct {
	*Driver
	*api
	listed map[croft.ClusterID][]stacks.ListedStack // oldest first
}

// look returns the observed state of one cluster.
func (o *glimpse) look(ctx context.Context, b cluster.Build) (cluster.Seen, error) {
	if o.sees(b) != nil {
		return cluster.Seen{Phase: cluster.Absent, Remote: b.Remote, Elsewhere: true,
			Failure: "the credential is for another project of the site"}, nil
	}
	st, err := o.choose(ctx, b)
	switch {
	case forbidden(err):
		return cluster.Seen{Phase: cluster.Absent, Remote: b.Remote, Elsewhere: true,
			Failure: "the site refuses to show the stack of the cluster"}, nil
	case err != nil:
		return cluster.Seen{}, err
	case st == nil:
		remote := b.Remote
		remote.Status, remote.Reason = "", ""
		return cluster.Seen{Phase: cluster.Absent, Remote: remote}, nil
	}
	seen := cluster.Seen{Phase: o.phase(*st), Remote: o.remote(*st)}
	if isMarker(st.Tags) {
		return o.lookAtMarker(seen), nil
	}
	return seen, o.fill(ctx, &seen, *st, b)
}

// choose returns the stack of the cluster, or nil.
func (o *glimpse) choose(ctx context.Context, b cluster.Build) (*stacks.ListedStack, error) {
	of := o.listed[b.Cluster]
	if i := slices.IndexFunc(of, func(st stacks.ListedStack) bool { return st.ID == b.Remote.ID }); i >= 0 {
		return &of[i], nil
	}
	if len(of) > 0 {
		return &of[0], nil
	}
	if b.Remote.ID == "" {
		return nil, nil
	}
	st, err := o.get(ctx, nameOf(b), b.Remote.ID)
	switch {
	case missing(err):
		return nil, nil
	case err != nil:
		return nil, err
	case st.Status == "DELETE_COMPLETE":
		return nil, nil
	}
	return listedOf(st), nil
}

// listedOf converts a stack to the form of a list entry.
func listedOf(st *stacks.RetrievedStack) *stacks.ListedStack {
	return &stacks.ListedStack{CreationTime: st.CreationTime, ID: st.ID, Name: st.Name, Status: st.Status,
		StatusReason: st.StatusReason, Tags: st.Tags, UpdatedTime: st.UpdatedTime}
}

// lookAtMarker returns the state of an empty stack that reserves a name. It is to be deleted once no late request can
// arrive.
func (o *glimpse) lookAtMarker(seen cluster.Seen) cluster.Seen {
	held := o.held(seen.Remote.ID)
	seen.Remote.ID = "" // it is not the stack of the cluster
	if seen.Phase == cluster.Removing || seen.Phase == cluster.Stuck {
		return seen
	}
	seen.Phase, seen.Failure = cluster.Removing, ""
	if held >= o.config.Settle {
		seen.Phase, seen.Failure = cluster.Stuck, "the name of the stack was held to turn a late request away"
	}
	return seen
}

// fill adds the facts that only a request for the stack itself returns.
func (o *glimpse) fill(ctx context.Context, seen *cluster.Seen, st stacks.ListedStack, b cluster.Build) error {
	switch seen.Phase {
	case cluster.Standing, cluster.Unsized, cluster.Broken, cluster.Stuck:
	default:
		return nil
	}
	contract, err := o.contract(ctx, b.Implementation)
	if err != nil {
		return err
	}
	d, err := o.detail(ctx, st, seen.Phase, b, contract)
	if err != nil {
		return err
	}
	switch seen.Phase {
	case cluster.Standing:
		read(seen, d.stack, b, contract)
		missed(seen, d.lost, d.stack, b)
	case cluster.Unsized:
		read(seen, d.stack, b, contract)
		missed(seen, d.lost, d.stack, b)
		seen.Outputs, seen.Failure = nil, d.reason
	default:
		seen.Failure = d.reason
	}
	if seen.Failure != "" {
		seen.Failure = cut(o.mask(seen.Failure, hidden(b, contract)...))
		seen.NoRoom = noRoom.MatchString(seen.Failure) && seen.Phase != cluster.Standing
	}
	return nil
}

// detail returns the cached details of a stack, and reads them if they may have changed.
func (o *glimpse) detail(ctx context.Context, st stacks.ListedStack, p cluster.Phase, b cluster.Build,
	c cluster.Contract) (*detail, error) {
	known, _ := recall(&o.memory, o.details, st.ID)
	if known != nil && known.status == st.Status && known.updated.Equal(st.UpdatedTime) &&
		time.Since(known.read) < o.config.Refresh {
		return known, nil
	}
	d := &detail{status: st.Status, updated: st.UpdatedTime, read: time.Now()}
	var err error
	if p == cluster.Standing || p == cluster.Unsized {
		if d.stack, err = o.get(ctx, st.Name, st.ID); err != nil {
			return nil, err
		}
		if d.stack.Status != st.Status || !d.stack.UpdatedTime.Equal(st.UpdatedTime) {
			return nil, croft.Errorf(croft.Unavailable, "the stack is changing")
		}
		if d.lost, err = o.lost(ctx, b, c, st.Name, st.ID); err != nil { // Nova may be unavailable for some time
			o.config.Log.Debug("the machines of a cluster cannot be compared with Nova", "cluster", b.Cluster,
				"err", err)
		}
	}
	if p != cluster.Standing {
		if d.reason, err = o.reason(ctx, st); err != nil {
			return nil, err
		}
	}
	remember(&o.memory, o.details, st.ID, d)
	return d, nil
}
