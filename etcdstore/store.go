// Package etcdstore keeps the cloud's shared state in etcd. No other package outside its tree imports the etcd client
// or the embedded server; keys.go names every key. Each write is one transaction that compares the data that it is
// based on. Each watch starts at the revision after its list, and lists again after a compaction.
package etcdstore

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/actionlog"
	"croft/etcdstore/aggregates"
	"croft/etcdstore/backups"
	"croft/etcdstore/clusters"
	"croft/etcdstore/images"
	"croft/etcdstore/partitions"
	"croft/etcdstore/policies"
	"croft/etcdstore/pools"
	"croft/etcdstore/properties"
	"croft/etcdstore/sizes"
	"croft/etcdstore/tenants"
	"croft/etcdstore/usages"
	"croft/etcdstore/volumes"
	"croft/internal/delay"
)

// Store is one connection to etcd and the home partition found there, with a type for each kind of record. It must be
// closed.
type Store struct {
	*conn
	AccessTokens *tenants.AccessTokens
	Actions      *actionlog.Log
	Aggregates   *aggregates.Aggregates
	Backups      *backups.Store
	Distances    *aggregates.Distances
	Cluster      *EtcdCluster
	Clusters     *clusters.Store
	Groups       *Groups
	Images       *images.Images
	Instances    *Instances
	Objects      *properties.Objects
	Orders       *Orders
	PageSessions *PageSessions
	Partitions   *partitions.Partitions
	Policies     *policies.Policies
	Sizes        *sizes.Sizes
	Pools        *pools.Pools
	Projects     *tenants.Projects
	Records      *Records
	Registry     *Registry
	SSHKeys      *SSHKeys
	Storages     *Storages
	Trust        *Trust
	Turn         *Turn
	Usage        *usages.History
	Volumes      *volumes.Volumes
}

// Open connects and reads the home partition, and creates it if c.Mint is set. Unavailable: etcd does not answer in
// time. NotFound: it contains no croft installation. Invalid: it refuses our credentials, or we do not trust its
// certificate.
func Open(ctx context.Context, c Config) (*Store, error) {
	if c.Embedded != nil {
		c.Endpoints = []string{c.Embedded.Endpoint()}
	}
	if len(c.Endpoints) == 0 {
		return nil, croft.Errorf(croft.Invalid, "etcd: no endpoints are set; give etcd.endpoints")
	}
	c.DialTimeout = cmp.Or(c.DialTimeout, 3*time.Second)
	conns := newConnections()
	etcd, trust, err := c.connect(ctx, conns)
	if err != nil {
		return nil, err
	}
	s := &conn{etcd: etcd, endpoints: strings.Join(c.Endpoints, ", "), user: c.User,
		sessionTTL: cmp.Or(c.SessionTTL, sessionTTL), metrics: newMetrics(), conns: conns, endLook: func() {}}
	s.waiters.conn = s
	if c.under != nil {
		etcd.KV = c.under(etcd.KV)
	}
	etcd.KV, etcd.Lease = measuredKV{etcd.KV, s.metrics}, measuredLease{etcd.Lease, s.metrics}
	etcd.KV = preservingKV{etcd.KV, &s.unknown, func() keys { return s.keys }}
	first, cancel := context.WithTimeout(ctx, c.DialTimeout)
	defer cancel()
	if err := s.enter(first, c.Mint); err != nil {
		if croft.KindOf(err) == croft.Unavailable && etcd.ActiveConnection() != nil && ctx.Err() == nil {
			err = cmp.Or(c.refusal(ctx, trust), err)
		}
		return nil, errors.Join(err, etcd.Close())
	}
	if etcd.ActiveConnection() != nil { // otherwise the server is in this process
		looking, end := context.WithCancel(context.WithoutCancel(ctx))
		s.endLook = end
		s.work.Go(func() { delay.Every(looking, hungLook, s.closeHung) })
		s.work.Go(func() { delay.Every(looking, watchPoke, s.pokeWatches) })
	}
	projects := tenants.NewProjects(s.shared(), s.keys.instances(), s.keys.owned,
		append(pools.Charged(s.shared(), s.keys.pools()), clusters.Charged(s.shared()), volumes.Charged(s.shared()),
			images.Charged(s.shared()))...)
	projects.Keep(chargedKeys(s), properties.Charged(s.shared()))
	projects.Keep(clusters.Kept(s.shared())...)
	projects.Keep(backups.Kept(s.shared())...)
	reach := pools.Reach{AwaitFree: s.awaitFree, MaxTxnOps: s.MaxTxnOps}
	instances := &Instances{conn: s, projects: projects,
		admissions: tenants.NewAdmissions(projects, recordsOf(s), &s.work)}
	objects := properties.NewObjects(s.shared(), thingsOf(s.keys), projects)
	volumes := volumesOf(s, projects)
	named := aggregates.New(s.shared(), s.keys.hosts())
	distances := aggregates.NewDistances(s.shared(), func() error { return canBound(s) })
	return &Store{conn: s, AccessTokens: tenants.NewAccessTokens(projects),
		Actions: actionlog.New(s.shared()), Aggregates: named,
		Backups: backups.New(s.shared(), projects, func() error { return canVolume(s) }), Cluster: &EtcdCluster{s},
		Clusters:  clusters.New(s.shared(), projects, leaseOf(s), func() error { return canCluster(s) }),
		Distances: distances, Groups: &Groups{s},
		Images:    imagesOf(s, projects, &Registry{s, named}, volumes),
		Instances: instances, Objects: objects, Orders: &Orders{conn: s},
		PageSessions: &PageSessions{s},
		Partitions:   partitions.New(s.shared(), root, homeOf(s, projects, objects, named, distances)),
		Policies:     policies.New(s.shared(), s.keys.hosts(), func() error { return canChoose(s) }),
		Sizes:        sizes.New(s.shared()),
		Pools:        pools.New(s.keys.pools(), projects, s.shared(), reach), Projects: projects, Records: &Records{s},
		Registry: &Registry{s, named}, SSHKeys: &SSHKeys{s, projects}, Storages: &Storages{s},
		Trust: &Trust{s}, Turn: &Turn{s},
		Usage: usages.New(s.shared(), projects), Volumes: volumes}, nil
}

// imagesOf makes the store of images.
func imagesOf(s *conn, p *tenants.Projects, r *Registry, v *volumes.Volumes) *images.Images {
	return images.New(s.shared(), p, func() error { return canKeepImages(s) }, images.Others{Alive: s.keys.alive,
		Drained: s.keys.drained, Order: s.keys.order, Hosts: r.Hosts, EndSnapshot: v.EndSnapshot})
}

// volumesOf makes the store of volumes.
func volumesOf(s *conn, p *tenants.Projects) *volumes.Volumes {
	return volumes.New(s.shared(), p, volumes.Sessions{Begin: s.sessionKey, Retire: s.retireSession,
		Key: s.keys.session}, func() error { return canVolume(s) }, volumes.Others{Instance: s.keys.instance,
		Alive: s.keys.alive, Drained: s.keys.drained, Dead: s.keys.dead})
}

// homeOf returns the functions and keys with which the home partition is read at a revision.
func homeOf(s *conn, p *tenants.Projects, o *properties.Objects, a *aggregates.Aggregates,
	d *aggregates.Distances) partitions.Home {
	return partitions.Home{Hosts: s.keys.hosts(), Drained: s.keys.allDrained(), Instances: s.keys.instances(),
		Authority: s.keys.trust().authority(), Project: s.keys.tenants().Project,
		Aggregates: a.ReadAt, Distances: d.ReadAt, Projects: p.ReadAt, Objects: o.ReadAt,
		Definitions: o.DefinitionsAt, Placement: s.Placement(0).ReadAt}
}

// leaseOf returns the lease of this process, which holds its keys of clusters.
func leaseOf(s *conn) clusters.Session {
	return clusters.Session{Lost: s.forgetLost, Lease: func(ctx context.Context) (clientv3.LeaseID, error) {
		_, lease, err := s.sessionKey(ctx)
		return lease, err
	}}
}

// thingsOf returns the prefixes of the records of objects.
func thingsOf(k keys) properties.Things {
	return properties.Things{Instances: k.instances(), Hosts: k.hosts(), Groups: k.groups().all()}
}
