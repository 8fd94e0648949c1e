package etcdstore

import (
	"context"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
)

// SetMoving implements hosts.Instances.
func (s *Instances) SetMoving(ctx context.Context, inst croft.Instance, to croft.HostID) (croft.Instance, error) {
	next := inst
	next.Moving = to
	return s.rewrite(ctx, inst, next)
}

// Relocate implements hosts.Instances. A former host whose order is gone never gets parts of the instance again: only
// the target of a move gets an order, and it then is the instance's host.
func (s *Instances) Relocate(ctx context.Context, inst croft.Instance, tombstone, order croft.Order) (croft.Instance,
	error) {
	k := s.conn.keys
	next := inst
	before, err := s.stillOrdered(ctx, inst, order.Host)
	if err != nil {
		return inst, err
	}
	next.Backup = order.Backup
	next.Host, next.Moving, next.MovedFrom, next.LeftBefore, next.Generation = order.Host, "", inst.Host, before,
		order.Generation
	order.MovedFrom, order.LeftBefore = next.MovedFrom, next.LeftBefore
	stored, order, more, err := userData{s.conn}.keepUserData(ctx, next, order)
	if err != nil {
		return inst, err
	}
	departures, err := s.conn.endDepartures(ctx, inst, croft.WantGone, inst.Host, order.Host)
	if err != nil {
		return inst, err
	}
	ops := slices.Concat(more, departures, k.groups().leave(inst), k.groups().join(next),
		k.dropAddress(inst, inst.Host), k.takeAddress(next, next.Host))
	done, err := s.conn.etcd.Txn(ctx).
		If(append(append(asChosen(k, next), k.addressFree(next, next.Host)...),
			unchanged(k.instance(inst.ID), inst.Revision),
			// Existence is enough: an agent that returned with the host's UUID carries out orders like the former one.
			exists(k.alive(order.Host)),
			absent(k.drained(order.Host)),
			absent(k.order(order.Host, inst.ID)),
		)...).
		Then(append(ops,
			clientv3.OpPut(k.instance(inst.ID), encode(stored)),
			clientv3.OpPut(k.order(inst.Host, inst.ID), s.conn.encodeOrder(tombstone)),
			clientv3.OpPut(k.order(order.Host, inst.ID), s.conn.encodeOrder(order)),
		)...).
		Else(slices.Concat([]clientv3.Op{clientv3.OpGet(k.instance(inst.ID)),
			clientv3.OpGet(k.order(order.Host, inst.ID))}, readChosen(k, next),
			k.readAddress(next, next.Host))...).Commit()
	if err != nil {
		return inst, s.conn.wrap(err, "write the orders that move instance %s", inst.ID)
	}
	if !done.Succeeded {
		if record := done.Responses[0].GetResponseRange().Kvs; len(record) == 0 ||
			record[0].ModRevision != inst.Revision {
			return inst,
				croft.Errorf(croft.Conflict, "instance %s was changed by another request while it was being moved",
					inst.ID)
		}
		if err := stale(next, done.Responses[2:]); err != nil {
			return inst, err
		}
		if err := s.conn.occupied(order.Host, done.Responses[1]); err != nil {
			return inst, err
		}
		if err := addressTaken(next, next.Host, done.Responses[2+len(readChosen(k, next)):]); err != nil {
			return inst, err
		}
		return inst, croft.Errorf(croft.Unavailable, "host %s is silent or drained", order.Host)
	}
	next.Revision = done.Header.Revision
	return next, nil
}

// stillOrdered returns the former hosts of an instance that still have an order for it. Unavailable: there are
// such hosts, and the agent of the target host supports only one former host.
func (s *Instances) stillOrdered(ctx context.Context, inst croft.Instance, to croft.HostID) ([]croft.HostID, error) {
	ops := []clientv3.Op{clientv3.OpGet(s.conn.keys.alive(to))}
	for _, host := range inst.Former() {
		ops = append(ops, clientv3.OpGet(s.conn.keys.order(host, inst.ID), clientv3.WithCountOnly()))
	}
	if len(ops) == 1 {
		return nil, nil
	}
	got, err := s.conn.etcd.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return nil, s.conn.wrap(err, "find the remains of instance %s", inst.ID)
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
