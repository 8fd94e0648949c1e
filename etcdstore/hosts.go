package etcdstore

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/audit"
)

// Drain implements hosts.Store.
func (s *Store) Drain(ctx context.Context, host croft.HostID) error {
	key := s.keys.drained(host)
	_, err := s.etcd.Txn(ctx).If(absent(key)).Then(clientv3.OpPut(key, time.Now().UTC().Format(time.RFC3339))).Commit()
	return s.wrapped(err, "drain the host")
}

// Enable implements hosts.Store.
func (s *Store) Enable(ctx context.Context, host croft.HostID) error {
	_, err := s.etcd.Delete(ctx, s.keys.drained(host))
	return s.wrapped(err, "enable the host")
}

// Accept implements hosts.Store.
func (s *Store) Accept(ctx context.Context, host croft.HostID) error {
	key := s.keys.host(host)
	got, err := s.etcd.Get(ctx, key)
	if err != nil {
		return s.wrap(err, "read the record of host %s", host)
	}
	if len(got.Kvs) == 0 {
		return croft.Errorf(croft.NotFound, "there is no host %s", host)
	}
	var h storedHost
	if err := s.decode(got.Kvs[0].Key, got.Kvs[0].Value, &h); err != nil {
		return err
	}
	h.Place = ""
	done, err := s.etcd.Txn(ctx).If(unchanged(key, got.Kvs[0].ModRevision)).Then(clientv3.OpPut(key,
		encode(h))).Commit()
	if err == nil && !done.Succeeded {
		return croft.Errorf(croft.Conflict, "its agent has just come back; look at `croft host list`")
	}
	return s.wrapped(err, "accept the host")
}

// ForgetHost implements hosts.Store. It removes observations and all other data of the host, its record last.
// Tombstones stay.
func (s *Store) ForgetHost(ctx context.Context, host croft.HostID) error {
	b, err := s.HostEvidence(ctx, host)
	if err != nil {
		return err
	}
	for _, o := range b.Orders {
		if o.Want == croft.WantGone {
			continue
		}
		if inst, exists := b.Instances[o.Instance]; exists && inst.Host == host {
			return croft.Errorf(croft.Conflict, "instance %s is on the host", inst.Name)
		}
		if err := s.dropOrder(ctx, o); err != nil {
			return err
		}
	}
	_, err = s.etcd.Txn(ctx).Then(
		clientv3.OpDelete(s.keys.observedOn(host), clientv3.WithPrefix()),
		clientv3.OpDelete(s.keys.twins(host), clientv3.WithPrefix()),
		clientv3.OpDelete(s.keys.drained(host)),
		clientv3.OpDelete(s.keys.seen(host)),
		clientv3.OpDelete(s.keys.trust().join(host)),
		clientv3.OpDelete(s.keys.trust().formerJoin(host)),
		clientv3.OpDelete(s.keys.trust().joined(host)),
		clientv3.OpDelete(s.keys.host(host)),
	).Commit()
	return s.wrapped(err, "remove the host's record")
}

// dropOrder removes an order without an instance, and its observation.
func (s *Store) dropOrder(ctx context.Context, o croft.Order) error {
	_, err := s.etcd.Txn(ctx).
		If(unchanged(s.keys.order(o.Host, o.Instance), o.Revision), absent(s.keys.instance(o.Instance))).
		Then(clientv3.OpDelete(s.keys.order(o.Host, o.Instance)),
			clientv3.OpDelete(s.keys.observed(o.Host, o.Instance))).
		Commit()
	return s.wrapped(err, "remove an order")
}

// Drop implements audit.Records and compute.Records. Each removal compares its precondition; if that no longer
// holds, nothing is left to do.
func (s *Store) Drop(ctx context.Context, d audit.Difference) error {
	switch d.Kind {
	case audit.LostName:
		name := s.keys.name(d.Project, d.Name)
		_, err := s.etcd.Txn(ctx).If(unchanged(name, d.Revision)).Then(clientv3.OpDelete(name)).Commit()
		return s.wrapped(err, "remove a name")
	case audit.LostOrder:
		return s.dropOrder(ctx, croft.Order{Host: d.Host, Instance: d.Instance, Revision: d.Revision})
	case audit.LostMember:
		if d.Affinity == nil {
			return croft.Errorf(croft.Invalid, "a membership of no group")
		}
		member := croft.Member{Affinity: *d.Affinity, Host: d.Host, Instance: d.Instance}
		key := s.keys.groups().member(d.Project, member)
		_, err := s.etcd.Txn(ctx).If(unchanged(key, d.Revision)).Then(clientv3.OpDelete(key)).Commit()
		return s.wrapped(err, "remove a membership")
	case audit.LostUserData:
		key := s.keys.userData(d.Instance)
		_, err := s.etcd.Txn(ctx).If(unchanged(key, d.Revision),
			absent(s.keys.instance(d.Instance))).Then(clientv3.OpDelete(key)).Commit()
		return s.wrapped(err, "remove an instance's user-data")
	case audit.LostObservation:
		_, err := s.etcd.Txn(ctx).If(absent(s.keys.order(d.Host, d.Instance))).
			Then(clientv3.OpDelete(s.keys.observed(d.Host, d.Instance))).Commit()
		return s.wrapped(err, "remove an observation")
	}
	return croft.Errorf(croft.Invalid, "%s is not mended by removing anything", d.Kind)
}

// PutName implements audit.Records. Conflict: another instance has the name.
func (s *Store) PutName(ctx context.Context, inst croft.Instance) error {
	name := s.keys.name(inst.Project, inst.Name)
	done, err := s.etcd.Txn(ctx).If(absent(name), exists(s.keys.instance(inst.ID))).
		Then(clientv3.OpPut(name, string(inst.ID))).Commit()
	if err == nil && !done.Succeeded {
		return croft.Errorf(croft.Conflict, "the name %s is taken by another instance", inst.Name)
	}
	return s.wrapped(err, "write a name")
}

// PutMember implements audit.Records.
func (s *Store) PutMember(ctx context.Context, inst croft.Instance) error {
	done, err := s.etcd.Txn(ctx).If(unchanged(s.keys.instance(inst.ID), inst.Revision)).
		Then(s.keys.groups().join(inst)...).Commit()
	if err == nil && !done.Succeeded {
		return croft.Errorf(croft.Conflict, "instance %s was changed by somebody else", inst.ID)
	}
	return s.wrapped(err, "write a membership")
}

// SetMoving implements hosts.Instances.
func (s *Store) SetMoving(ctx context.Context, inst croft.Instance, to croft.HostID) (croft.Instance, error) {
	if inst.Revision == 0 {
		return inst, croft.Errorf(croft.Conflict, "instance %q was never written", inst.ID)
	}
	next := inst
	next.Moving = to
	done, err := s.etcd.Txn(ctx).If(unchanged(s.keys.instance(inst.ID), inst.Revision)).
		Then(clientv3.OpPut(s.keys.instance(inst.ID), encode(next))).Commit()
	if err != nil {
		return inst, s.wrap(err, "write the record of instance %s", inst.ID)
	}
	if !done.Succeeded {
		return inst, croft.Errorf(croft.Conflict, "instance %s was changed by somebody else", inst.ID)
	}
	next.Revision = done.Header.Revision
	return next, nil
}

// Relocate implements hosts.Instances. A former host whose order is gone never has anything again: only the
// target of a move gets an order, and it is the instance's host then.
func (s *Store) Relocate(ctx context.Context, inst croft.Instance, tombstone, order croft.Order) (croft.Instance,
	error) {
	next := inst
	before, err := s.stillOrdered(ctx, inst, order.Host)
	if err != nil {
		return inst, err
	}
	next.Host, next.Moving, next.MovedFrom, next.LeftBefore, next.Generation = order.Host, "", inst.Host, before,
		order.Generation
	order.MovedFrom, order.LeftBefore = next.MovedFrom, next.LeftBefore
	stored, order, more, err := userData{s.conn}.keepUserData(ctx, next, order)
	if err != nil {
		return inst, err
	}
	ops := append(more, append(s.keys.groups().leave(inst), s.keys.groups().join(next)...)...)
	done, err := s.etcd.Txn(ctx).
		If(
			unchanged(s.keys.instance(inst.ID), inst.Revision),
			exists(s.keys.alive(order.Host)),
			absent(s.keys.drained(order.Host)),
			absent(s.keys.order(order.Host, inst.ID)),
		).
		Then(append(ops,
			clientv3.OpPut(s.keys.instance(inst.ID), encode(stored)),
			clientv3.OpPut(s.keys.order(inst.Host, inst.ID), s.encodeOrder(tombstone)),
			clientv3.OpPut(s.keys.order(order.Host, inst.ID), s.encodeOrder(order)),
		)...).
		Else(clientv3.OpGet(s.keys.instance(inst.ID))).Commit()
	if err != nil {
		return inst, s.wrap(err, "write the orders that move instance %s", inst.ID)
	}
	if !done.Succeeded {
		if record := done.Responses[0].GetResponseRange().Kvs; len(record) == 0 ||
			record[0].ModRevision != inst.Revision {
			return inst,
				croft.Errorf(croft.Conflict, "instance %s was changed by somebody else while it was being moved",
					inst.ID)
		}
		return inst,
			croft.Errorf(croft.Unavailable,
				"host %s is silent, drained, or still removes an older instance of this UUID", order.Host)
	}
	next.Revision = done.Header.Revision
	return next, nil
}

// stillOrdered returns the former hosts of an instance that still have an order for it. Unavailable: there are
// such hosts, and the agent of the target host supports only one former host.
func (s *Store) stillOrdered(ctx context.Context, inst croft.Instance, to croft.HostID) ([]croft.HostID, error) {
	ops := []clientv3.Op{clientv3.OpGet(s.keys.alive(to))}
	for _, host := range inst.Former() {
		ops = append(ops, clientv3.OpGet(s.keys.order(host, inst.ID), clientv3.WithCountOnly()))
	}
	if len(ops) == 1 {
		return nil, nil
	}
	got, err := s.etcd.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return nil, s.wrap(err, "look for what is left of instance %s", inst.ID)
	}
	var still []croft.HostID
	for i, host := range inst.Former() {
		if got.Responses[1+i].GetResponseRange().Count > 0 {
			still = append(still, host)
		}
	}
	life := got.Responses[0].GetResponseRange().Kvs
	if len(still) > 0 && len(life) > 0 && !knows(life[0].Value, formersMinor) {
		return nil,
			croft.Errorf(croft.Unavailable,
				"host %s has still to remove instance %s, and the agent of host %s is of an older version, which waits for one host alone", still[0], inst.ID, to)
	}
	return still, nil
}
