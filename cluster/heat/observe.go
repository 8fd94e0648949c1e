package heat

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/orchestration/v1/stacks"

	"croft"
	"croft/cluster"
)

// Observe implements cluster.Driver: one list for all clusters, and a request more for each whose stack changed.
func (d *Driver) Observe(ctx context.Context, at cluster.Access, all []cluster.Build) (map[croft.ClusterID]cluster.Seen,
	error) {
	if len(all) == 0 {
		return map[croft.ClusterID]cluster.Seen{}, nil
	}
	s, client, err := d.connect(ctx, at)
	if err != nil {
		return nil, err
	}
	listed, err := d.list(ctx, s, client, partitionTag(all[0].Partition))
	if err != nil {
		return nil, err
	}
	o := observation{Driver: d, s: s, client: client, listed: map[croft.ClusterID][]stacks.ListedStack{}}
	for _, st := range listed {
		id := clusterOf(st.Tags, all[0].Partition)
		o.listed[id] = append(o.listed[id], st)
	}
	seen := map[croft.ClusterID]cluster.Seen{}
	for _, b := range all {
		one, err := o.look(ctx, b)
		if err != nil {
			d.c.Log.Debug("a cluster cannot be observed", "cluster", b.Cluster, "err", err)
			continue
		}
		seen[b.Cluster] = one
	}
	return seen, nil
}

// observation is one look at several clusters.
type observation struct {
	*Driver
	s      *session
	client *gophercloud.ServiceClient
	listed map[croft.ClusterID][]stacks.ListedStack // oldest first
}

// look returns what the site has of one cluster.
func (o *observation) look(ctx context.Context, b cluster.Build) (cluster.Seen, error) {
	if o.s.sees(b) != nil {
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
	seen := cluster.Seen{Phase: o.phase(*st), Remote: o.s.remote(*st)}
	if isMarker(st.Tags) {
		return o.lookAtMarker(seen), nil
	}
	return seen, o.fill(ctx, &seen, *st, b)
}

// choose returns the stack that is the cluster's, or nil.
func (o *observation) choose(ctx context.Context, b cluster.Build) (*stacks.ListedStack, error) {
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
	st, err := o.get(ctx, o.client, nameOf(b), b.Remote.ID)
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

// listedOf shortens a stack to what a list has of it.
func listedOf(st *stacks.RetrievedStack) *stacks.ListedStack {
	return &stacks.ListedStack{CreationTime: st.CreationTime, ID: st.ID, Name: st.Name, Status: st.Status,
		StatusReason: st.StatusReason, Tags: st.Tags, UpdatedTime: st.UpdatedTime}
}

// lookAtMarker says how it is with a name that is held: it is to be given free once late requests are over.
func (o *observation) lookAtMarker(seen cluster.Seen) cluster.Seen {
	held := o.held(seen.Remote.ID)
	seen.Remote.ID = "" // it is not the cluster
	if seen.Phase == cluster.Removing || seen.Phase == cluster.Stuck {
		return seen
	}
	seen.Phase, seen.Failure = cluster.Removing, ""
	if held >= o.c.Settle {
		seen.Phase, seen.Failure = cluster.Stuck, "the name of the stack was held to turn a late request away"
	}
	return seen
}

// phase reads the status of a stack. What others do to our stacks (check, suspend, snapshot) leaves them standing.
func phase(status string) cluster.Phase {
	action, state, _ := strings.Cut(status, "_")
	switch {
	case status == "DELETE_COMPLETE":
		return cluster.Absent
	case action == "DELETE" && state == "FAILED":
		return cluster.Stuck
	case action == "DELETE":
		return cluster.Removing
	case (action == "CREATE" || action == "INIT" || action == "ADOPT") && state != "COMPLETE" && state != "FAILED":
		return cluster.Working
	case (action == "CREATE" || action == "ADOPT") && state == "FAILED", status == "ROLLBACK_COMPLETE":
		return cluster.Broken
	case (action == "UPDATE" || action == "ROLLBACK") && state == "FAILED":
		return cluster.Unsized
	case (action == "UPDATE" || action == "ROLLBACK") && state != "COMPLETE":
		return cluster.Updating
	}
	return cluster.Standing
}

// detail is what was learned of a stack beyond a list.
type detail struct {
	status  string
	updated time.Time
	read    time.Time
	stack   *stacks.RetrievedStack
	reason  string
}

// fill adds what only the stack itself tells.
func (o *observation) fill(ctx context.Context, seen *cluster.Seen, st stacks.ListedStack, b cluster.Build) error {
	switch seen.Phase {
	case cluster.Standing, cluster.Unsized, cluster.Broken, cluster.Stuck:
	default:
		return nil
	}
	d, err := o.detail(ctx, st, seen.Phase)
	if err != nil {
		return err
	}
	contract, err := o.contract(ctx, b.Implementation)
	if err != nil {
		return err
	}
	switch seen.Phase {
	case cluster.Standing:
		read(seen, d.stack, b, contract)
	case cluster.Unsized:
		read(seen, d.stack, b, contract)
		seen.Outputs, seen.Failure = nil, d.reason
	default:
		seen.Failure = d.reason
	}
	if seen.Failure != "" {
		seen.Failure = cut(o.s.mask(seen.Failure, hidden(b, contract)...))
		seen.NoRoom = noRoom.MatchString(seen.Failure) && seen.Phase != cluster.Standing
	}
	return nil
}

// mostDetails bounds what is remembered of stacks.
const mostDetails = 5000

// detail returns what is known of a stack, and asks if that may have changed.
func (o *observation) detail(ctx context.Context, st stacks.ListedStack, p cluster.Phase) (*detail, error) {
	o.mu.Lock()
	known := o.details[st.ID]
	o.mu.Unlock()
	if known != nil && known.status == st.Status && known.updated.Equal(st.UpdatedTime) &&
		time.Since(known.read) < o.c.Refresh {
		return known, nil
	}
	d := &detail{status: st.Status, updated: st.UpdatedTime, read: time.Now()}
	var err error
	if p == cluster.Standing || p == cluster.Unsized {
		if d.stack, err = o.get(ctx, o.client, st.Name, st.ID); err != nil {
			return nil, err
		}
		if d.stack.Status != st.Status || !d.stack.UpdatedTime.Equal(st.UpdatedTime) {
			return nil, croft.Errorf(croft.Unavailable, "the stack is changing")
		}
	}
	if p != cluster.Standing {
		if d.reason, err = o.reason(ctx, st); err != nil {
			return nil, err
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.details) > mostDetails {
		clear(o.details)
	}
	o.details[st.ID] = d
	return d, nil
}
