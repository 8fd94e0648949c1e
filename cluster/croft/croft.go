// Package croft is the driver for sites of type croft: it builds clusters in another croft cloud through its API. The
// other cloud gets the cluster under the same ID, so a repeated request finds the result of the first one, and the
// members have the same IDs in both clouds. The other cloud chooses which of its sites builds the cluster.
package croft

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"croft"
	"croft/cluster"
	"croft/cluster/outbound"
	"croft/control/api"
)

// Peer is a connection to the other cloud, as one of its users.
type Peer struct {
	Clusters
	// Version returns the version of the other cloud. Denied: it does not accept the token.
	Version func(ctx context.Context) (string, error)
	Close   func() error
}

// Clusters are the operations of the other cloud that the driver needs. *client.Client has them.
type Clusters interface {
	CreateCluster(ctx context.Context, in api.NewCluster) (api.Cluster, error)
	ExplainCluster(ctx context.Context, in api.ClusterCandidates) (cluster.Explanation, error)
	GetCluster(ctx context.Context, in api.ClusterAwaited) (api.Cluster, error)
	ListClusters(ctx context.Context, in api.ClusterFilter, which ...api.Listing) (api.ClusterList, error)
	ChangeCluster(ctx context.Context, in api.ClusterChange) (api.Cluster, error)
	RemoveClusterHost(ctx context.Context, in api.ClusterHostNamed) (api.Cluster, error)
	DeleteCluster(ctx context.Context, in api.ClusterRemoval) (api.Cluster, error)
}

// Connect returns a connection to a site. It sends nothing yet. Invalid: the site's address or the token cannot be
// used.
type Connect func(at cluster.SiteAccess) (Peer, error)

// Driver implements cluster.Driver. It opens a connection for each call.
type Driver struct {
	connect Connect

	mu    sync.Mutex
	since map[croft.ClusterID]time.Time // since when an earlier build request may still arrive
}

var _ cluster.Driver = (*Driver)(nil)

// New returns a driver.
func New(connect Connect) *Driver {
	return &Driver{connect: connect, since: map[croft.ClusterID]time.Time{}}
}

// with calls do with a connection to the site.
func (d *Driver) with(at cluster.SiteAccess, what string, do func(p Peer) error) (err error) {
	p, err := d.connect(at)
	if err != nil {
		return fmt.Errorf("site %s: %s: %w", at.Site.Name, what, err)
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if err := do(p); err != nil {
		return responded(fmt.Errorf("site %s: %s: %w", at.Site.Name, what, err))
	}
	return nil
}

// responded marks an error as silence of the other cloud, or as a fault that it answered with.
func responded(err error) error {
	switch kind := croft.KindOf(err); {
	case kind != croft.Unavailable && kind != "":
		return err
	case outbound.NoResponse(err):
		return cluster.Silent(croft.Errorf(croft.Unavailable, "%w", err))
	}
	return cluster.Faulty(croft.Errorf(croft.Unavailable, "%w", err))
}

// name returns the name of a cluster in the other cloud. The prefix avoids conflicts between two clouds that use one
// project.
func name(p croft.PartitionID, id croft.ClusterID) string {
	return prefix(p) + string(id)
}

func prefix(p croft.PartitionID) string { return "croft-" + string(p[:min(len(p), 8)]) + "-" }

// project returns the project in the other cloud, from the credential; empty: the project of the token.
func project(at cluster.SiteAccess) api.InProject {
	return api.InProject{Project: croft.Project(at.Credential.ProjectName)}
}

// named names a cluster of the other cloud.
func named(at cluster.SiteAccess, b cluster.Build) api.ClusterNamed {
	return api.ClusterNamed{InProject: project(at), ID: string(b.Cluster)}
}

// request returns the request that is sent to the other cloud.
func request(at cluster.SiteAccess, b cluster.Build) (r api.NewCluster, err error) {
	t, err := parse(b.Implementation)
	if err != nil {
		return r, err
	}
	given := maps.Clone(b.Parameters)
	delete(given, cluster.ParamKeys)
	return api.NewCluster{InProject: project(at), Spec: cluster.Spec{ID: b.Cluster,
		Name: name(b.Partition, b.Cluster), Appliance: t.Appliance, Slaves: len(b.Indexes),
		Hints:      cluster.Hints{Sites: t.Sites},
		Parameters: given, Keys: b.Keys(), Reuse: cluster.ReuseNever}}, nil
}

// Probe implements cluster.Driver.
func (d *Driver) Probe(ctx context.Context, at cluster.SiteAccess) (probe cluster.Probe, err error) {
	err = d.with(at, "ask how it is", func(p Peer) error {
		probe.Version, err = p.Version(ctx)
		probe.Builds, probe.Accepted = err == nil, err == nil && at.Credential.ID != ""
		return err
	})
	return probe, err
}

// Room implements cluster.Driver. Room for growth is reported as unknown.
func (d *Driver) Room(ctx context.Context, at cluster.SiteAccess, b cluster.Build) (room cluster.Room, err error) {
	if b.Growth {
		return cluster.Room{}, nil
	}
	r, err := request(at, b)
	if err != nil {
		return room, err
	}
	r.ID = ""
	err = d.with(at, "ask for room", func(p Peer) error {
		why, err := p.ExplainCluster(ctx, api.ClusterCandidates{InProject: r.InProject, Spec: r.Spec})
		if err != nil {
			return err
		}
		room = cluster.Room{Known: true, Fits: len(why.Candidates) > 0, Free: 0.5}
		if !room.Fits {
			room.Free, room.Why = 0, (&cluster.ChoiceError{Dropped: why.Dropped}).Error()
		}
		return nil
	})
	return room, err
}

// Bring implements cluster.Driver with an error: the other cloud has its own images.
func (*Driver) Bring(_ context.Context, at cluster.SiteAccess, i cluster.SiteImage) (cluster.Placed, error) {
	return cluster.Placed{}, croft.Errorf(
		croft.Invalid,
		"image %s cannot be brought to site %s: a croft has images of "+
			"its own, which its appliances name",
		i.Name,
		at.Site.Name,
	)
}

// Launch implements cluster.Driver.
func (d *Driver) Launch(ctx context.Context, at cluster.SiteAccess, b cluster.Build) (remote cluster.Remote,
	err error) {
	r, err := request(at, b)
	if err != nil {
		return remote, err
	}
	err = d.with(at, "ask for a cluster", func(p Peer) error {
		c, err := p.CreateCluster(ctx, r)
		remote = remoteOf(b, c.Cluster)
		return err
	})
	if errors.Is(err, croft.NotFound) { // of the appliance
		err = croft.Errorf(croft.Invalid, "%w", err)
	}
	return remote, err
}

func remoteOf(b cluster.Build, c cluster.Cluster) cluster.Remote {
	r := cluster.Remote{ID: string(c.ID), Name: b.Remote.Name, Asked: true, Status: string(c.State)}
	if c.Error != nil {
		r.Reason = c.Error.Message
	}
	return r
}

// Resize implements cluster.Driver. It sends the indexes of the slaves, so that they have the same IDs in both clouds,
// also after a resize that one of them refused. A cloud of a version before 1.8 gets only their number.
func (d *Driver) Resize(ctx context.Context, at cluster.SiteAccess, b cluster.Build) error {
	return d.with(at, "resize cluster "+string(b.Cluster), func(p Peer) error {
		indexes := append([]int{}, b.Indexes...)
		_, err := p.ChangeCluster(ctx, api.ClusterChange{ClusterNamed: named(at, b),
			Change: cluster.Change{Indexes: &indexes}})
		if croft.KindOf(err) != croft.Invalid || !strings.Contains(err.Error(), "indexes") {
			return err
		}
		return resizeByNumber(ctx, p, at, b)
	})
}

// resizeByNumber resizes a cluster of a cloud that assigns indexes itself.
func resizeByNumber(ctx context.Context, p Peer, at cluster.SiteAccess, b cluster.Build) error {
	c, err := p.GetCluster(ctx, api.ClusterAwaited{ClusterNamed: named(at, b)})
	if err != nil {
		return err
	}
	for _, i := range c.Indexes {
		if slices.Contains(b.Indexes, i) {
			continue
		}
		host := string(cluster.IDOf(b.Cluster, cluster.Slave, i))
		c, err = p.RemoveClusterHost(ctx, api.ClusterHostNamed{ClusterNamed: named(at, b), Host: host})
		if err != nil {
			return err
		}
	}
	if n := len(b.Indexes); c.Slaves != n {
		_, err = p.ChangeCluster(ctx, api.ClusterChange{ClusterNamed: named(at, b), Change: cluster.Change{Slaves: &n}})
	}
	return err
}

// settle is how long a build request may arrive after its caller gave up. It is longer than the timeout of a call.
const settle = 2 * time.Minute

// Destroy implements cluster.Driver. If the answer to a build request was lost, Destroy repeats the request to find out
// whether the first one took effect or will: the other cloud recognizes it by its ID, and does not accept that ID again
// once the cluster is deleted. A refusal for another reason, such as lack of room, decides nothing, because the late
// request may find room. Destroy then returns Unavailable, so that it is called again, until that has lasted as long as
// a request can take. The sweep finds a cluster that is created even later.
func (d *Driver) Destroy(ctx context.Context, at cluster.SiteAccess, b cluster.Build) error {
	err := d.with(at, "delete cluster "+string(b.Cluster), func(p Peer) error {
		removed := func() error {
			_, err := p.DeleteCluster(ctx, api.ClusterRemoval{ClusterNamed: named(at, b), Force: true})
			return err
		}
		err := removed()
		if croft.KindOf(err) != croft.NotFound || !b.Remote.Asked || b.Remote.ID != "" {
			return err
		}
		r, err := request(at, b)
		if err != nil {
			return err
		}
		_, refusal := p.CreateCluster(ctx, r)
		if refusal != nil && !isRefusal(refusal) {
			return refusal
		}
		// The repeated request created the cluster, or the late one has done so meanwhile.
		if err := removed(); croft.KindOf(err) != croft.NotFound {
			return err
		}
		if refusal == nil || croft.KindOf(refusal) == croft.Conflict || d.unsettled(b.Cluster) >= settle {
			return nil // the ID belongs to another cluster, so the late request fails too
		}
		return croft.Errorf(
			croft.Unavailable,
			"a request to build it may be on its way, and a second one is refused: %w",
			refusal,
		)
	})
	if croft.KindOf(err) == croft.NotFound {
		return nil
	}
	return err
}

// isRefusal reports whether an error is a definite refusal of the other cloud.
func isRefusal(err error) bool {
	switch croft.KindOf(err) {
	case croft.Invalid, croft.NotFound, croft.Conflict, croft.NoCapacity, croft.OverQuota:
		return true
	}
	return false
}

// mostUnsettled bounds the number of remembered clusters.
const mostUnsettled = 1000

// unsettled returns how long it has been unknown whether a build request will still arrive.
func (d *Driver) unsettled(id croft.ClusterID) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	since, known := d.since[id]
	if !known {
		if len(d.since) >= mostUnsettled {
			clear(d.since)
		}
		since = time.Now()
		d.since[id] = since
	}
	return time.Since(since)
}

// Observe implements cluster.Driver, with one request.
func (d *Driver) Observe(ctx context.Context, at cluster.SiteAccess, all []cluster.Build) (
	map[croft.ClusterID]cluster.Seen, error) {
	there, err := d.list(ctx, at)
	if err != nil {
		return nil, err
	}
	found := map[croft.ClusterID]cluster.Seen{}
	for _, b := range all {
		found[b.Cluster] = cluster.Seen{Phase: cluster.Absent}
		if c, ok := there[b.Cluster]; ok && c.Name == name(b.Partition, b.Cluster) {
			found[b.Cluster] = seen(b, c)
		}
	}
	return found, nil
}

func (d *Driver) list(ctx context.Context, at cluster.SiteAccess) (map[croft.ClusterID]cluster.Cluster, error) {
	there := map[croft.ClusterID]cluster.Cluster{}
	return there, d.with(at, "list its clusters", func(p Peer) error {
		list, err := p.ListClusters(ctx, api.ClusterFilter{InProject: project(at)})
		for _, c := range list.Clusters {
			there[c.ID] = c.Cluster
		}
		return err
	})
}

// List implements cluster.Driver.
func (d *Driver) List(ctx context.Context, at cluster.SiteAccess) ([]cluster.Found, error) {
	there, err := d.list(ctx, at)
	if err != nil {
		return nil, err
	}
	var all []cluster.Found
	for _, c := range there {
		if strings.HasPrefix(c.Name, prefix(at.Partition)) && c.State != cluster.Deleted {
			all = append(all, cluster.Found{Cluster: c.ID, Remote: cluster.Remote{ID: string(c.ID),
				Name: "croft-" + string(c.ID), Status: string(c.State), Asked: true}})
		}
	}
	return all, nil
}

// seen converts a cluster of the other cloud to an observation.
func seen(b cluster.Build, c cluster.Cluster) cluster.Seen {
	s := cluster.Seen{Remote: remoteOf(b, c), MasterIP: c.MasterIP, Members: slices.Clone(c.Members)}
	message := func() string {
		if c.Error == nil {
			return "the other cloud does not say why"
		}
		return c.Error.Message
	}
	switch c.State {
	case cluster.Scheduling, cluster.Building:
		s.Phase = cluster.Working
	case cluster.Resizing:
		s.Phase = cluster.Updating
	case cluster.Deleting:
		s.Phase = cluster.Removing
		if c.Retry.Tries > 1 {
			s.Phase, s.Failure = cluster.Stuck, c.Step
		}
	case cluster.Deleted:
		s.Phase = cluster.Absent
	case cluster.Failed:
		s.Phase, s.Failure = cluster.Broken, message()
		s.NoRoom = c.Error != nil && c.Error.Code == cluster.FailedRoom
	default:
		s.Phase = standing(b, c)
		if s.Phase == cluster.Unsized {
			s.Failure = message()
		}
		if s.Phase == cluster.Standing {
			s.Outputs = outputs(c)
		}
	}
	return s
}

// standing returns the phase of a usable cluster: the other cloud may not have started a resize yet, or may have undone
// it.
func standing(b cluster.Build, c cluster.Cluster) cluster.Phase {
	switch {
	case c.Slaves != len(b.Indexes):
		return cluster.Unsized
	case c.Slaves != c.Good && c.State == cluster.Ready:
		return cluster.Updating
	}
	return cluster.Standing
}

func outputs(c cluster.Cluster) map[string]any {
	all := map[string]any{}
	for name, value := range c.Outputs {
		all[name] = value
	}
	all["master_ip"] = c.MasterIP
	return all
}
