package etcdstore

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/compute"
)

var (
	_ compute.Orders   = (*Store)(nil)
	_ compute.Registry = (*Store)(nil)
	_ compute.Records  = (*Store)(nil)
)

// WatchOrders implements compute.Orders. It also wakes orders that disappeared while the watch was broken.
func (s *Store) WatchOrders(ctx context.Context, host croft.HostID, wake func(croft.InstanceID)) error {
	known := map[croft.InstanceID]bool{}
	return s.follow(ctx, s.keys.orders(host),
		func() {
			for id := range known {
				wake(id)
			}
		},
		func(kv *mvccpb.KeyValue, present bool) {
			id := croft.InstanceID(last(kv.Key))
			if present {
				known[id] = true
			} else {
				delete(known, id)
			}
			wake(id)
		})
}

// Order implements compute.Orders.
func (s *Store) Order(ctx context.Context, host croft.HostID, id croft.InstanceID) (croft.Order, error) {
	got, err := s.etcd.Txn(ctx).Then(clientv3.OpGet(s.keys.order(host, id)),
		clientv3.OpGet(s.keys.userData(id))).Commit()
	if err != nil {
		return croft.Order{}, s.wrap(err, "read the order of instance %s", id)
	}
	found := got.Responses[0].GetResponseRange().Kvs
	if len(found) == 0 {
		return croft.Order{}, croft.Errorf(croft.NotFound, "no order for instance %s on host %s", id, host)
	}
	o, err := s.decodeOrder(found[0])
	if err == nil && o.Want != croft.WantGone {
		fillUserData(&o.Spec, got.Responses[1].GetResponseRange().Kvs)
	}
	return o, err
}

func (s *conn) decodeOrder(kv *mvccpb.KeyValue) (croft.Order, error) {
	var o croft.Order
	err := s.decode(kv.Key, kv.Value, &o)
	o.Revision = kv.ModRevision
	return o, err
}

// Remains implements compute.Orders. The tombstone of a forgotten host does not count as remaining; it stays
// for the host's return.
func (s *Store) Remains(ctx context.Context, host croft.HostID, id croft.InstanceID) (bool, error) {
	got, err := s.etcd.Txn(ctx).Then(
		clientv3.OpGet(s.keys.order(host, id), clientv3.WithCountOnly()),
		clientv3.OpGet(s.keys.host(host), clientv3.WithCountOnly()),
	).Commit()
	if err != nil {
		return false, s.wrap(err, "look for what is left of instance %s on host %s", id, host)
	}
	return got.Responses[0].GetResponseRange().Count > 0 && got.Responses[1].GetResponseRange().Count > 0, nil
}

// Observed implements compute.Orders.
func (s *Store) Observed(ctx context.Context, host croft.HostID, id croft.InstanceID) (croft.Observation, error) {
	var o croft.Observation
	got, err := s.etcd.Get(ctx, s.keys.observed(host, id))
	if err != nil {
		return o, s.wrap(err, "read the observation of instance %s", id)
	}
	if len(got.Kvs) == 0 {
		return o, croft.Errorf(croft.NotFound, "instance %s was not observed on host %s", id, host)
	}
	return o, s.decode(got.Kvs[0].Key, got.Kvs[0].Value, &o)
}

// Observe implements compute.Orders.
func (s *Store) Observe(ctx context.Context, o croft.Observation) error {
	done, err := s.etcd.Txn(ctx).
		If(exists(s.keys.order(o.Host, o.Instance))).
		Then(clientv3.OpPut(s.keys.observed(o.Host, o.Instance), encode(o))).
		Commit()
	if err != nil {
		return s.wrap(err, "write the observation of instance %s", o.Instance)
	}
	if !done.Succeeded {
		return croft.Errorf(croft.Conflict, "instance %s has no order any more", o.Instance)
	}
	return nil
}

// Forget implements compute.Orders. A record that has moved to another host meanwhile, as after a forced
// destroy, does not belong to this order and stays.
func (s *Store) Forget(ctx context.Context, o croft.Order) error {
	order := s.keys.order(o.Host, o.Instance)
	compares := []clientv3.Cmp{unchanged(order, o.Revision)}
	removals := []clientv3.Op{
		clientv3.OpDelete(order),
		clientv3.OpDelete(s.keys.observed(o.Host, o.Instance)),
	}
	inst, err := s.Instance(ctx, o.Instance)
	switch {
	case errors.Is(err, croft.NotFound):
		compares = append(compares, absent(s.keys.instance(o.Instance)))
	case err != nil:
		return err
	default:
		compares = append(compares, unchanged(s.keys.instance(o.Instance), inst.Revision))
		if inst.Host == o.Host {
			removals = append(removals, s.removeRecord(inst)...)
		}
	}
	done, err := s.etcd.Txn(ctx).If(compares...).Then(removals...).Commit()
	if err != nil {
		return s.wrap(err, "remove the record of instance %s", o.Instance)
	}
	if !done.Succeeded {
		return croft.Errorf(croft.Conflict, "instance %s changed while it was being forgotten", o.Instance)
	}
	return nil
}

// removeRecord removes everything of an instance except order and observation.
func (s *Store) removeRecord(inst croft.Instance) []clientv3.Op {
	return append(s.keys.groups().leave(inst),
		clientv3.OpDelete(s.keys.instance(inst.ID)),
		clientv3.OpDelete(s.keys.userData(inst.ID)),
		clientv3.OpDelete(s.keys.name(inst.Project, inst.Name)),
	)
}

// Instance implements compute.Records and hosts.Instances: the record without user-data, which only the reader
// of the order gets.
func (s *Store) Instance(ctx context.Context, id croft.InstanceID) (croft.Instance, error) {
	got, err := s.etcd.Get(ctx, s.keys.instance(id))
	if err != nil {
		return croft.Instance{}, s.wrap(err, "read the record of instance %s", id)
	}
	if len(got.Kvs) == 0 {
		return croft.Instance{}, croft.Errorf(croft.NotFound, "no instance %s", id)
	}
	return s.decodeInstance(got.Kvs[0])
}

func (s *conn) decodeInstance(kv *mvccpb.KeyValue) (croft.Instance, error) {
	var inst croft.Instance
	err := s.decode(kv.Key, kv.Value, &inst)
	inst.Revision = kv.ModRevision
	return inst, err
}

// Discard implements audit.Records and schedule.Records.
func (s *Store) Discard(ctx context.Context, inst croft.Instance) error {
	if inst.State != croft.StateScheduling {
		return croft.Errorf(croft.Conflict, "instance %s is %s, not scheduling", inst.ID, inst.State)
	}
	done, err := s.etcd.Txn(ctx).
		If(unchanged(s.keys.instance(inst.ID), inst.Revision)).
		Then(s.removeRecord(inst)...).Commit()
	if err != nil {
		s.retireSession(inst.Session)
		return s.wrap(err, "discard the record of instance %s", inst.ID)
	}
	if !done.Succeeded {
		return croft.Errorf(croft.Conflict, "instance %s changed while it was being discarded", inst.ID)
	}
	return nil
}
