// Package clusters stores in etcd the records of clusters, which managers hold them, and the catalogue from which they
// are built. A record is written in one transaction with its name, the keys of the records that it names, and the
// charge of its project; a manager that writes it compares that it still holds the cluster.
package clusters

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/cluster"
	"croft/etcdstore/internal/kv"
	"croft/etcdstore/internal/shelf"
	"croft/etcdstore/tenants"
	"croft/tenant"
)

// Store is the store of clusters.
type Store struct {
	*Records
	*ApplianceStore
	*Accounts
}

// Session is the lease of this process.
type Session struct {
	// Lease returns the lease, and creates it if necessary.
	Lease func(ctx context.Context) (clientv3.LeaseID, error)
	// Lost is called with the error of a transaction that named a lease.
	Lost func(err error, lease clientv3.LeaseID)
}

// New makes the store of clusters. It stores new records only if may returns nil.
func New(c *kv.Conn, p *tenants.Projects, s Session, may func() error) *Store {
	r := &Records{conn: c, projects: p, session: s, may: may, taking: map[croft.ClusterID]bool{},
		held: map[croft.ClusterID]int64{}}
	return &Store{r, &ApplianceStore{conn: c, may: may, projects: p}, &Accounts{c}}
}

// Records stores the records of clusters, their events, and which managers hold them.
type Records struct {
	conn     *kv.Conn
	projects *tenants.Projects
	session  Session
	may      func() error

	mu     sync.Mutex
	taking map[croft.ClusterID]bool  // a Hold is in progress
	held   map[croft.ClusterID]int64 // creation revisions of the holders' keys
}

var (
	_ cluster.Records        = (*Store)(nil)
	_ cluster.ApplianceStore = (*Store)(nil)
	_ cluster.Accounts       = (*Store)(nil)
)

func (s *Records) keys() Keys { return Keys(s.conn.Prefix) }

// chargeOf returns the charge for a cluster, until it is deleted.
func chargeOf(c cluster.Cluster) tenants.Charge {
	if c.State == cluster.Deleted {
		return tenants.Charge{}
	}
	return tenants.Charge{Project: c.Project, Amounts: tenant.Amounts{tenant.CountClusters: 1}}
}

// Charged returns the source of the charges for stored clusters.
func Charged(c *kv.Conn) tenants.Source { return recordsOf(c).Source() }

func recordsOf(c *kv.Conn) shelf.Shelf[cluster.Cluster] {
	return shelf.Shelf[cluster.Cluster]{Conn: c, Noun: "cluster", Prefix: Keys(c.Prefix).Records(), Charge: chargeOf,
		Decode: func(stored *mvccpb.KeyValue) (cluster.Cluster, error) {
			var s storedCluster
			err := c.Decode(stored.Key, stored.Value, &s)
			s.Cluster.KeepIdle, s.Revised = cluster.Seconds(s.KeepIdle), stored.ModRevision
			return s.Cluster, err
		},
		Missing: func(_ context.Context, name string) error { return missing(croft.ClusterID(name)) }}
}

func missing(id croft.ClusterID) error {
	return croft.Errorf(croft.NotFound, "there is no cluster %.80s", id)
}

// Get implements cluster.Records.
func (s *Records) Get(ctx context.Context, id croft.ClusterID) (cluster.Cluster, error) {
	stored, err := s.conn.Get(ctx, s.keys().record(id), "read the record of cluster %s", id)
	if err != nil {
		return cluster.Cluster{}, err
	}
	if stored == nil {
		return cluster.Cluster{}, missing(id)
	}
	c, err := recordsOf(s.conn).Read(stored)
	if err != nil || c.State != cluster.Deleted {
		return c, err
	}
	return c, s.isOfPresent(ctx, c, stored.CreateRevision)
}

// isOfPresent hides the record of a deleted cluster from a later project of the same name, which was created after the
// cluster. A living cluster always belongs to the present project, because a project is not removed before its
// clusters. NotFound.
func (s *Records) isOfPresent(ctx context.Context, c cluster.Cluster, created int64) error {
	got, err := s.conn.Etcd.Get(ctx, tenants.Keys(s.conn.Prefix).Project(c.Project), clientv3.WithKeysOnly())
	if err != nil {
		return s.conn.Wrap(err, "read project %s", c.Project)
	}
	if len(got.Kvs) > 0 && got.Kvs[0].CreateRevision > created {
		return missing(c.ID)
	}
	return nil
}

// Named implements cluster.Records.
func (s *Records) Named(ctx context.Context, project croft.Project, name string) (cluster.Cluster, error) {
	got, err := s.conn.Etcd.Get(ctx, s.keys().name(project, name))
	if err != nil {
		return cluster.Cluster{}, s.conn.Wrap(err, "look for cluster %s", name)
	}
	if len(got.Kvs) > 0 {
		c, err := s.Get(ctx, croft.ClusterID(got.Kvs[0].Value))
		if err != nil || c.Name == name && c.State != cluster.Deleted { // otherwise it has lost the name meanwhile
			return c, err
		}
	}
	return cluster.Cluster{}, croft.Errorf(croft.NotFound, "project %s has no cluster %.80q; `croft cluster list` "+
		"lists its clusters", project, name)
}

// Latest implements cluster.Records.
func (s *Records) Latest(ctx context.Context, project croft.Project, user, appliance string) (int64, error) {
	got, err := s.conn.Etcd.Get(ctx, s.keys().made(project, user, appliance), clientv3.WithPrefix(),
		clientv3.WithKeysOnly(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend),
		clientv3.WithLimit(1))
	if err != nil {
		return 0, s.conn.Wrap(err, "look which clusters of %s there are", user)
	}
	for _, stored := range got.Kvs {
		return stored.CreateRevision, nil
	}
	return 0, nil
}

// maxRecord is the maximum size of a record in bytes. etcd accepts requests of 1.5 MiB; a cluster with a thousand
// members takes half of maxRecord.
const maxRecord = 1 << 20

// storedCluster is a cluster as it is stored: with a time in nanoseconds, which clients get in seconds.
type storedCluster struct {
	cluster.Cluster
	KeepIdle time.Duration `json:"keep_idle,omitempty"`
}

// encodeCluster returns a record in its stored form. Invalid: it is too large.
func encodeCluster(c cluster.Cluster) (string, error) {
	text := kv.Encode(storedCluster{c, time.Duration(c.KeepIdle)})
	if len(text) > maxRecord {
		return "", croft.Errorf(croft.Invalid, "the record of cluster %s has %d bytes, at most %d are stored: its outputs "+
			"or parameters are too long", c.ID, len(text), maxRecord)
	}
	return text, nil
}

// checkNew refuses fields that cannot become part of keys. Invalid.
func checkNew(c cluster.Cluster) error {
	if _, err := croft.ParseClusterID(string(c.ID)); err != nil {
		return err
	}
	if err := c.Project.Check(); err != nil {
		return err
	}
	if err := cluster.CheckAppliance(c.Appliance); err != nil {
		return err
	}
	return cluster.CheckName("a cluster", c.Name)
}

// Create implements cluster.Records.
func (s *Records) Create(ctx context.Context, c cluster.Cluster, latest int64) (cluster.Cluster, error) {
	if err := s.may(); err != nil {
		return c, err
	}
	if err := checkNew(c); err != nil {
		return c, err
	}
	text, err := encodeCluster(c)
	if err != nil {
		return c, err
	}
	revision, err := s.projects.Write(ctx, s.chargedWrite(c, text, latest))
	if err == nil && revision == 0 {
		err = &croft.TakenError{What: "id", By: string(c.ID), Text: "there is a cluster " + string(c.ID) +
			" already: choose another ID, or none"}
	}
	c.Revised = revision
	return c, err
}

// chargedWrite returns the transaction that writes a new record.
func (s *Records) chargedWrite(c cluster.Cluster, text string, latest int64) tenants.ChargedWrite {
	k, refs := s.keys(), refsOf(c)
	record, name, made := k.record(c.ID), k.name(c.Project, c.Name), k.made(c.Project, c.User, c.Appliance)
	return tenants.ChargedWrite{Project: c.Project, Amounts: chargeOf(c).Amounts, Record: record,
		ID: "cluster-" + string(cluster.NewUseID()), What: "write the record of cluster " + string(c.ID),
		If: append(k.present(refs), kv.Absent(name), kv.NoneSince(made, latest)),
		Write: append(k.use(refs, c.ID), clientv3.OpPut(record, text), clientv3.OpPut(name, string(c.ID)),
			clientv3.OpPut(k.madeBy(c), "")),
		Else: append([]clientv3.Op{clientv3.OpGet(name), clientv3.OpGet(made, clientv3.WithPrefix(),
			clientv3.WithKeysOnly())}, k.look(refs)...),
		Refused: func(answers []*etcdserverpb.ResponseOp) error {
			for _, other := range answers[1].GetResponseRange().Kvs {
				if other.CreateRevision > latest {
					return croft.Errorf(croft.Conflict, "another cluster of appliance %s was created for %s at the same "+
						"time: look at it, and try again", cluster.ApplianceName(c.Appliance), c.User)
				}
			}
			return cmp.Or(nameTaken(c, answers[0]), gone(refs, answers[2:]))
		}}
}

// nameTaken returns the error if another cluster has the name of a cluster, according to the answer about the name's
// key; nil: no other cluster has it.
func nameTaken(c cluster.Cluster, answer *etcdserverpb.ResponseOp) error {
	holder := kv.First(answer)
	if holder == nil || string(holder.Value) == string(c.ID) {
		return nil
	}
	return &croft.TakenError{What: "name", By: string(holder.Value), Text: "the name " + c.Name +
		" is taken by cluster " + string(holder.Value) + ": choose another, or delete that one"}
}

// List implements cluster.Records.
func (s *Records) List(ctx context.Context, project croft.Project) ([]cluster.Cluster, error) {
	all := []cluster.Cluster{}
	err := recordsOf(s.conn).Each(ctx, 0, func(c cluster.Cluster) error {
		if project == "" || c.Project == project {
			all = append(all, c)
		}
		return nil
	})
	sortClusters(all)
	return all, err
}

// Living implements cluster.Records. The names of a project belong to its living clusters.
func (s *Records) Living(ctx context.Context, project croft.Project) ([]cluster.Cluster, error) {
	all, err := recordsOf(s.conn).Indexed(ctx, s.keys().names(project), func(name *mvccpb.KeyValue) string {
		return string(name.Value)
	})
	all = slices.DeleteFunc(all, func(c cluster.Cluster) bool { return c.State == cluster.Deleted })
	sortClusters(all)
	return all, err
}

// Follow implements cluster.Records.
func (s *Records) Follow(ctx context.Context, changed func(croft.ClusterID)) error {
	known := map[croft.ClusterID]bool{}
	note := func(stored *mvccpb.KeyValue, present bool) {
		id := croft.ClusterID(kv.Last(stored.Key))
		if delete(known, id); present {
			known[id] = true
		}
		changed(id)
	}
	return s.conn.FollowWhole(ctx, s.keys().Records(), func(listed []*mvccpb.KeyValue) {
		before := known
		known = map[croft.ClusterID]bool{}
		for _, stored := range listed {
			note(stored, true)
			delete(before, croft.ClusterID(kv.Last(stored.Key)))
		}
		for id := range before { // they were removed while there was no watch
			changed(id)
		}
	}, note)
}
