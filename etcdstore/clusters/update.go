package clusters

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/cluster"
	"croft/etcdstore/internal/kv"
	"croft/etcdstore/tenants"
)

// Update implements cluster.Records.
func (s *Records) Update(ctx context.Context, c cluster.Cluster, by *cluster.Holder) (cluster.Cluster, error) {
	if err := cluster.CheckName("a cluster", c.Name); err != nil {
		return c, err
	}
	text, err := encodeCluster(c)
	if err != nil {
		return c, err
	}
	before, err := s.Get(ctx, c.ID)
	switch {
	case croft.KindOf(err) == croft.NotFound:
		return c, changed(c.ID)
	case err != nil:
		return c, err
	}
	if err := mayBecome(before, c); err != nil {
		return c, err
	}
	if by != nil && by.Cluster != c.ID {
		return c, notHeld(c.ID)
	}
	for {
		room, err := s.siteRoom(ctx, before, c)
		if err != nil {
			return c, err
		}
		written, err := s.replace(ctx, before, c, text, room, by)
		if !errors.Is(err, errOvertaken) { // otherwise the site has one more cluster now, so the retries end
			return written, err
		}
	}
}

// replace replaces a record. errOvertaken.
func (s *Records) replace(ctx context.Context, before, c cluster.Cluster, text string, room siteRoom,
	by *cluster.Holder) (cluster.Cluster, error) {
	k := s.keys()
	compares, ops := k.change(before, c)
	compares = append(append(compares, room.compares()...), kv.Unchanged(k.record(c.ID), c.Revised))
	if by != nil {
		compares = append(compares, clientv3.Compare(clientv3.CreateRevision(by.Key), "=", by.Created))
	}
	fresh := without(refsOf(c), refsOf(before))
	looks := append([]clientv3.Op{clientv3.OpGet(k.record(c.ID), clientv3.WithKeysOnly()),
		clientv3.OpGet(k.name(c.Project, c.Name))}, k.look(fresh)...)
	done, err := s.conn.Etcd.Txn(ctx).If(compares...).Then(append(ops, clientv3.OpPut(k.record(c.ID), text))...).
		Else(append(looks, room.look()...)...).Commit()
	if err != nil {
		return c, s.conn.Wrap(err, "write the record of cluster %s", c.ID)
	}
	if done.Succeeded {
		c.Revised = done.Header.Revision
		return c, nil
	}
	if now := kv.First(done.Responses[0]); now == nil || now.ModRevision != c.Revised {
		return c, changed(c.ID)
	}
	if c.Name != before.Name {
		if err := nameTaken(c, done.Responses[1]); err != nil {
			return c, err
		}
	}
	if err := gone(fresh, done.Responses[2:]); err != nil {
		return c, err
	}
	if room.overtaken(done.Responses[len(looks):]) {
		return c, errOvertaken
	}
	return c, notHeld(c.ID)
}

func changed(id croft.ClusterID) error {
	return croft.Errorf(croft.Conflict, "cluster %s was changed by another request: look at it, and try again", id)
}

func notHeld(id croft.ClusterID) error {
	return croft.Errorf(croft.Conflict, "cluster %s is held by another process, or by none", id)
}

// mayBecome refuses an invalid change of a record.
func mayBecome(before, c cluster.Cluster) error {
	switch {
	case before.Revised != c.Revised:
		return changed(c.ID)
	case before.Project != c.Project || before.User != c.User || before.Appliance != c.Appliance:
		return croft.Errorf(croft.Invalid, "project, user and appliance of cluster %s cannot change", c.ID)
	case before.State == cluster.Deleted && c.State != cluster.Deleted:
		return croft.Errorf(croft.Conflict, "cluster %s is deleted", c.ID)
	}
	return nil
}

// change returns the comparisons and operations, in addition to the ones of the record, for a change of a record.
func (k Keys) change(before, c cluster.Cluster) (compares []clientv3.Cmp, ops []clientv3.Op) {
	if before.State == cluster.Deleted {
		return nil, nil // a deleted cluster has no further keys
	}
	name, had, has := k.name(before.Project, before.Name), refsOf(before), refsOf(c)
	ops = k.unuse(without(had, has), c.ID)
	if c.State == cluster.Deleted {
		charge := chargeOf(before)
		return nil, append(ops, clientv3.OpDelete(name), clientv3.OpDelete(k.madeBy(before)),
			clientv3.OpDelete(k.accounts(c.ID), clientv3.WithPrefix()),
			tenants.Keys(k).GiveBack(charge, fmt.Sprintf("cluster-%s-%d", c.ID, before.Revised)))
	}
	if next := k.name(c.Project, c.Name); next != name {
		compares = append(compares, kv.Absent(next))
		ops = append(ops, clientv3.OpDelete(name), clientv3.OpPut(next, string(c.ID)))
	}
	fresh := without(has, had)
	return append(compares, k.present(fresh)...), append(ops, k.use(fresh, c.ID)...)
}

// Forget implements cluster.Records.
func (s *Records) Forget(ctx context.Context, id croft.ClusterID) error {
	k := s.keys()
	for {
		c, err := s.Get(ctx, id)
		if err != nil {
			return err
		}
		if c.State != cluster.Deleted {
			return croft.Errorf(croft.Conflict, "cluster %s is not deleted", id)
		}
		done, err := s.conn.Etcd.Txn(ctx).If(kv.Unchanged(k.record(id), c.Revised)).
			Then(clientv3.OpDelete(k.record(id)), clientv3.OpDelete(k.holder(id)),
				clientv3.OpDelete(k.events(id), clientv3.WithPrefix())).Commit()
		if err != nil {
			return s.conn.Wrap(err, "forget cluster %s", id)
		}
		if done.Succeeded { // otherwise the record was changed, so the retries end
			return nil
		}
	}
}
