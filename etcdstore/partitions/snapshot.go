package partitions

import (
	"context"
	"encoding/json"
	"errors"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/control/federation"
	"croft/etcdstore/internal/kv"
	"croft/placement/transfer"
	"croft/tenant"
	"croft/tenant/objects"
)

// Home holds the functions and keys with which the home partition is read at a revision.
type Home struct {
	Hosts, Drained, Instances string // prefixes of keys that end in an ID
	Authority                 string // the key of the authority of hosts
	Project                   func(croft.Project) string
	Projects                  func(ctx context.Context, revision int64) ([]tenant.Tenant, tenant.Defaults, error)
	Objects                   func(ctx context.Context, revision int64, each func(objects.Object) error) error
	Aggregates                func(ctx context.Context, revision int64) ([]croft.Aggregate, error)
	Distances                 func(ctx context.Context, revision int64) ([]croft.Distances, error)
	Definitions               func(ctx context.Context, revision int64) ([]objects.Definition, error)
	Placement                 func(ctx context.Context, revision int64) (*transfer.State, error)
}

// Snapshot implements federation.Store.
func (s *Partitions) Snapshot(ctx context.Context, begin func(int64) error, each func(federation.Row) error) error {
	now, err := s.conn.Etcd.Get(ctx, s.home.Hosts, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return s.conn.Wrap(err, "begin the export")
	}
	if err := begin(now.Header.Revision); err != nil {
		return err
	}
	n := &snapshot{s, now.Header.Revision, each}
	for _, read := range []func(context.Context) error{n.hosts, n.providers, n.aggregates, n.distances, n.projects,
		n.definitions, n.objects, n.instances} {
		if err := read(ctx); err != nil {
			if errors.Is(err, rpctypes.ErrCompacted) {
				return croft.Errorf(croft.Conflict, "etcd forgot the moment of the export before everything was read: %w", err)
			}
			return err
		}
	}
	return nil
}

// snapshot is one call of Snapshot.
type snapshot struct {
	*Partitions
	revision int64
	each     func(federation.Row) error
}

func (n *snapshot) row(kind federation.Kind, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return n.each(federation.Row{Kind: kind, Row: text})
}

// read calls each with every key below a prefix.
func (n *snapshot) read(ctx context.Context, prefix string, each func(*mvccpb.KeyValue) error) error {
	return n.conn.ReadRange(ctx, "export", prefix, n.revision, each)
}

func (n *snapshot) hosts(ctx context.Context) error {
	drained := map[string]bool{}
	err := n.read(ctx, n.home.Drained, func(stored *mvccpb.KeyValue) error {
		drained[kv.Last(stored.Key)] = true
		return nil
	})
	if err != nil {
		return err
	}
	return n.read(ctx, n.home.Hosts, func(stored *mvccpb.KeyValue) error {
		var h struct {
			croft.Host
			Token string `json:"token"` // read, but not exported
		}
		if err := n.conn.Decode(stored.Key, stored.Value, &h); err != nil {
			return err
		}
		h.Drained = drained[string(h.ID)]
		return n.row(federation.KindHost, federation.HostOf(h.Host))
	})
}

// providers exports the providers of the embedded Placement, each with the root of its tree.
func (n *snapshot) providers(ctx context.Context) error {
	state, err := n.home.Placement(ctx, n.revision)
	if err != nil {
		return err
	}
	parents := map[croft.HostID]croft.HostID{}
	for _, p := range state.Providers {
		parents[p.ID] = p.Parent
	}
	for _, p := range state.Providers {
		root := p.Parent
		for range len(parents) {
			if parents[root] == "" {
				break
			}
			root = parents[root]
		}
		err := n.row(federation.KindProvider, federation.Provider{ID: p.ID, Name: p.Name, Root: root,
			Inventories: p.Inventories, Traits: p.Traits, Aggregates: p.Aggregates})
		if err != nil {
			return err
		}
	}
	return nil
}

func (n *snapshot) aggregates(ctx context.Context) error {
	all, err := n.home.Aggregates(ctx, n.revision)
	for _, a := range all {
		if err != nil {
			break
		}
		err = n.row(federation.KindAggregate, a)
	}
	return err
}

func (n *snapshot) distances(ctx context.Context) error {
	all, err := n.home.Distances(ctx, n.revision)
	for _, stated := range all {
		for _, d := range stated.Distances {
			if err != nil {
				break
			}
			err = n.row(federation.KindDistance, federation.Distance{Type: stated.Type, Distance: d})
		}
	}
	return err
}

func (n *snapshot) projects(ctx context.Context) error {
	all, defaults, err := n.home.Projects(ctx, n.revision)
	if err == nil && defaults.Generation > 0 {
		err = n.row(federation.KindQuota, defaults)
	}
	for _, p := range all {
		if err != nil {
			break
		}
		err = n.row(federation.KindProject, p)
	}
	return err
}

func (n *snapshot) definitions(ctx context.Context) error {
	all, err := n.home.Definitions(ctx, n.revision)
	for _, d := range all {
		if err != nil {
			break
		}
		err = n.row(federation.KindDefinition, d)
	}
	return err
}

func (n *snapshot) objects(ctx context.Context) error {
	return n.home.Objects(ctx, n.revision, func(o objects.Object) error { return n.row(federation.KindObject, o) })
}

func (n *snapshot) instances(ctx context.Context) error {
	return n.read(ctx, n.home.Instances, func(stored *mvccpb.KeyValue) error {
		var inst croft.Instance
		if err := n.conn.Decode(stored.Key, stored.Value, &inst); err != nil {
			return err
		}
		return n.row(federation.KindInstance, federation.InstanceOf(inst))
	})
}
