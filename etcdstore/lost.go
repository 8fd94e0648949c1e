package etcdstore

import (
	"context"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/volumes"
)

// A lost instance keeps its record, its name, its user-data, its properties and its charge. The record names no host.
// So if the agent of the forgotten host returns and carries out the tombstone, it leaves the record alone.

// Lose implements hosts.Instances.
func (s *Instances) Lose(ctx context.Context, inst croft.Instance, why croft.Loss, tombstone croft.Order) (
	croft.Instance, error) {
	k := s.conn.keys
	next := inst
	next.State, next.Lost, next.Generation = croft.StateLost, &why, tombstone.Generation
	next.Host, next.Moving, next.Copying, next.Session, next.Seats, next.Refused = "", "", false, "", nil, nil
	if why.Death != 0 && inst.Storage != "" && !slices.Contains(inst.TakesFrom, tombstone.Host) {
		next.TakesFrom = append(slices.Clone(inst.TakesFrom), tombstone.Host)
	}
	ops := append(append(k.groups().leave(inst), k.dropAddress(inst, inst.Host)...),
		clientv3.OpPut(k.instance(inst.ID), encode(withoutUserData(next))),
		clientv3.OpPut(k.order(tombstone.Host, inst.ID), s.conn.encodeOrder(tombstone)))
	arrival, err := s.conn.endArrival(ctx, inst, tombstone.Generation)
	if err != nil {
		return inst, err
	}
	// A host that it moved away from, and that still has its disk, keeps it, like the lost host.
	departures, err := s.conn.endDepartures(ctx, inst, croft.WantLeft, tombstone.Host)
	if err != nil {
		return inst, err
	}
	ops = slices.Concat(ops, arrival, departures, s.keptUserData(inst))
	dead := croft.HostID("")
	if why.Death != 0 {
		dead = tombstone.Host
	}
	compares, snapshots, err := volumes.Lose(ctx, s.conn.shared(), inst.ID, dead)
	if err != nil {
		return inst, err
	}
	ops = append(ops, snapshots...)
	compares = append(compares, unchanged(k.instance(inst.ID), inst.Revision))
	if why.Death != 0 { // otherwise instances that came after the host was taken back would be lost
		compares = append(compares, created(k.dead(tombstone.Host), why.Death))
	}
	done, err := s.conn.etcd.Txn(ctx).If(compares...).Then(ops...).Commit()
	if err != nil {
		return inst, s.conn.wrap(err, "mark instance %s as lost", inst.ID)
	}
	if !done.Succeeded {
		return inst, croft.Errorf(croft.Conflict, "instance %s was changed by another request, or its host was taken back",
			inst.ID)
	}
	next.Revision = done.Header.Revision
	return next, nil
}

// Recreate implements schedule.Records.
func (s *Instances) Recreate(ctx context.Context, inst croft.Instance) (croft.Instance, error) {
	if s.conn.minor.Load() < lostMinor {
		return inst, croft.Errorf(croft.Invalid,
			"this cloud's croft is too old to recreate lost instances: upgrade the cloud, or destroy the instance and request another")
	}
	session, lease, err := s.conn.sessionKey(ctx)
	if err != nil {
		return inst, err
	}
	k := s.conn.keys
	next := inst
	next.State, next.Session = croft.StateScheduling, session
	done, err := s.conn.etcd.Txn(ctx).If(unchanged(k.instance(inst.ID), inst.Revision)).
		Then(clientv3.OpPut(k.session(session), "", clientv3.WithLease(lease)),
			clientv3.OpPut(k.instance(inst.ID), encode(withoutUserData(next)))).Commit()
	if err != nil {
		s.conn.forgetLost(err, lease)
		s.conn.retireSession(session)
		return inst, s.conn.wrap(err, "write the record of instance %s", inst.ID)
	}
	if !done.Succeeded {
		return inst, croft.Errorf(croft.Conflict, "instance %s was changed by another request", inst.ID)
	}
	next.Revision = done.Header.Revision
	return next, nil
}

// discard returns the operations that end a record in scheduling; an instance that was lost before becomes lost again.
func (s *conn) discard(inst croft.Instance) []clientv3.Op {
	if inst.Lost == nil {
		return s.keys.removeRecord(inst)
	}
	inst.State, inst.Session, inst.Host, inst.Seats = croft.StateLost, "", "", nil
	return []clientv3.Op{clientv3.OpPut(s.keys.instance(inst.ID), encode(withoutUserData(inst)))}
}
