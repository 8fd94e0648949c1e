package etcdstore

import (
	"context"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/aggregates"
	"croft/etcdstore/internal/kv"
	"croft/etcdstore/volumes"
	"croft/schedule"
)

// Assign implements schedule.Records. The transaction compares that the host is alive and that the session exists. So
// no order is written for a host that has just died, nor by a suspended scheduler whose request others are undoing.
func (s *Instances) Assign(ctx context.Context, inst croft.Instance, o croft.Order) (croft.Instance, error) {
	next := inst
	next.State, next.Host, next.Generation = croft.StateScheduled, o.Host, o.Generation
	next.Session, next.Lost = "", nil
	stored, o, more := next, o, []clientv3.Op(nil)
	if len(inst.Spec.UserData) > 0 {
		var err error
		if stored, o, more, err = (userData{s.conn}).keepUserData(ctx, next, o); err != nil {
			return inst, err
		}
	}
	return s.place(ctx, inst, next, stored,
		append(more, clientv3.OpPut(s.conn.keys.order(o.Host, inst.ID), s.conn.encodeOrder(o))))
}

// place changes the record inst to next, which has a host; stored is the form to store, and more are further operations
// of the same transaction.
func (s *Instances) place(ctx context.Context, inst, next, stored croft.Instance, more []clientv3.Op) (croft.Instance,
	error) {
	for {
		stored.Seats = next.Seats
		done, err := s.tryPlace(ctx, inst, next, stored, more)
		if err != nil {
			return inst, s.conn.wrap(err, "place instance %s on host %s", inst.ID, next.Host)
		}
		if done.Succeeded {
			next.Revision = done.Header.Revision
			return next, nil
		}
		if next.Seats, err = s.refused(inst, next, done); err != nil {
			return inst, err
		}
	}
}

func (s *Instances) tryPlace(ctx context.Context, inst, next, stored croft.Instance,
	more []clientv3.Op) (*clientv3.TxnResponse, error) {
	k := s.conn.keys
	record := k.instance(inst.ID)
	free, attach, read := k.volumes().Assigned(next)
	return s.conn.etcd.Txn(ctx).
		// Existence is enough: the key of a session names its lease, which is never given again.
		If(slices.Concat(orderable(k, next), free, []clientv3.Cmp{unchanged(record, inst.Revision),
			exists(k.session(inst.Session))})...). // enough, see above
		Then(slices.Concat(more, attach, k.groups().join(next), k.takeAddress(next, next.Host),
			[]clientv3.Op{clientv3.OpPut(record, encode(stored))})...).
		Else(slices.Concat([]clientv3.Op{
			clientv3.OpGet(record),
			clientv3.OpGet(k.session(inst.Session)),
			clientv3.OpGet(k.order(next.Host, next.ID)),
		}, read, readOrderable(k, next))...).Commit()
}

// refused returns which comparison of place failed. Without an error, other requests took the numbers of seats, and the
// returned ones are free. Each such conflict means that another request got its order, so the retries end.
func (s *Instances) refused(inst, next croft.Instance, done *clientv3.TxnResponse) ([]croft.Seat, error) {
	record := done.Responses[0].GetResponseRange().Kvs
	switch {
	case len(record) == 0 || record[0].ModRevision != inst.Revision:
		return nil, croft.Errorf(croft.Conflict,
			"instance %s was changed by another request while it was being scheduled", inst.ID)
	case done.Responses[1].GetResponseRange().Count == 0:
		return nil, croft.Errorf(croft.Conflict,
			"the lease of the scheduler of instance %s ran out, as after a pause of this machine, so that its "+
				"request is being undone; try again", inst.ID)
	}
	order, answers := done.Responses[2], done.Responses[3:]
	var attached []*mvccpb.KeyValue
	for _, answer := range answers[:len(next.Volumes)] {
		attached = append(attached, kv.First(answer))
	}
	if err := volumes.Unassigned(next, attached); err != nil {
		return nil, err
	}
	seats, collided, err := unorderable(next, answers[len(next.Volumes):])
	if err == nil && !collided {
		if err = s.conn.occupied(next.Host, order); err == nil { // it is gone by now, or this is another comparison
			err = croft.Errorf(croft.Unavailable, "host %s got no order for instance %s; try again", next.Host, inst.ID)
		}
	}
	return seats, err
}

// orderable returns the comparisons under which the first order of an instance may be written for its host.
func orderable(k keys, next croft.Instance) []clientv3.Cmp {
	return slices.Concat(k.groups().admitted(next), asChosen(k, next), k.addressFree(next, next.Host), []clientv3.Cmp{
		// Existence is enough: an agent that returned with the host's UUID carries out orders like the former one.
		exists(k.alive(next.Host)), absent(k.drained(next.Host)), absent(k.order(next.Host, next.ID))})
}

// readOrderable reads the keys that orderable compares, except for the order.
func readOrderable(k keys, next croft.Instance) []clientv3.Op {
	return slices.Concat([]clientv3.Op{
		clientv3.OpGet(k.alive(next.Host)),
		clientv3.OpGet(k.drained(next.Host)),
	}, k.readAddress(next, next.Host), readChosen(k, next), k.groups().get(next))
}

// unorderable returns which comparison of orderable failed, according to the result of readOrderable; no error: none of
// the keys read caused it. seats are the instance's seats with free numbers; collided: the numbers of its own seats
// were taken.
func unorderable(next croft.Instance, read []*etcdserverpb.ResponseOp) (seats []croft.Seat, collided bool, err error) {
	switch {
	case read[0].GetResponseRange().Count == 0:
		return nil, false, croft.Errorf(croft.Unavailable, "host %s has gone silent", next.Host)
	case read[1].GetResponseRange().Count > 0:
		return nil, false, croft.Errorf(croft.Unavailable, "host %s is being drained", next.Host)
	}
	read = read[2:]
	if err := addressTaken(next, next.Host, read); err != nil {
		return nil, false, err
	}
	read = read[len(keys{}.readAddress(next, next.Host)):]
	if err := stale(next, read); err != nil {
		return nil, false, err
	}
	if seats, collided, err = readmit(next, read[len(readChosen(keys{}, next)):]); err != nil {
		err = fmt.Errorf("host %s: %w", next.Host, err)
	}
	return seats, collided, err
}

// asChosen compares the data on which the choice of an instance's host is based.
func asChosen(k keys, next croft.Instance) []clientv3.Cmp {
	compares := k.aggregates().Unchanged(next.BasedOn)
	if next.PropertiesGeneration != nil {
		compares = append(compares, unchanged(k.properties(next.Host), *next.PropertiesGeneration))
	}
	return compares
}

// readChosen reads the keys that asChosen compares.
func readChosen(k keys, next croft.Instance) []clientv3.Op {
	reads := k.aggregates().Read(next.BasedOn)
	if next.PropertiesGeneration != nil {
		reads = append(reads, clientv3.OpGet(k.properties(next.Host), clientv3.WithKeysOnly()))
	}
	return reads
}

// stale returns an error if the data on which the choice of the host is based has changed, according to the result of
// readChosen.
func stale(next croft.Instance, read []*etcdserverpb.ResponseOp) error {
	if next.PropertiesGeneration != nil {
		now := int64(0)
		if kvs := read[len(next.BasedOn)].GetResponseRange().Kvs; len(kvs) > 0 {
			now = kvs[0].ModRevision
		}
		if now != *next.PropertiesGeneration {
			return croft.Errorf(croft.NoCapacity, "%w: the properties of host %s", schedule.ErrStale, next.Host)
		}
	}
	if name := aggregates.Changed(next.BasedOn, read); name != "" {
		return croft.Errorf(croft.NoCapacity, "%w: %s", schedule.ErrStale, name)
	}
	return nil
}

// Reorder implements schedule.Records.
func (s *Instances) Reorder(ctx context.Context, inst croft.Instance, o croft.Order) (croft.Instance, error) {
	if inst.Copying && o.Want != croft.WantGone {
		return inst, croft.Errorf(croft.Conflict, "its disk is being copied to another host; wait until it has "+
			"moved, or "+
			"have an operator end the move: `schedule move --cancel`")
	}
	record := s.conn.keys.instance(inst.ID)
	next := inst
	next.Generation, next.Rebooted, next.Rebuilt, next.Resized = o.Generation, o.Rebooted, o.Rebuilt, o.Resized
	next.Backup, next.Ejected = o.Backup, o.Ejected
	if o.Want == croft.WantGone {
		next.State, next.Copying = croft.StateDestroying, false
	}
	stored, o, more, err := userData{s.conn}.keepUserData(ctx, next, o)
	if err != nil {
		return inst, err
	}
	arrival, err := s.conn.endArrival(ctx, inst, o.Generation)
	if err != nil {
		return inst, err
	}
	more = append(more, arrival...)
	if o.Want == croft.WantGone || o.Rebuilt > inst.Rebuilt { // a guest whose former disk is kept may never run here
		departures, err := s.conn.endDepartures(ctx, inst, croft.WantGone, o.Host)
		if err != nil {
			return inst, err
		}
		more = append(more, departures...)
	}
	done, err := s.conn.etcd.Txn(ctx).
		If(unchanged(record, inst.Revision)).
		Then(append(more,
			clientv3.OpPut(record, encode(stored)),
			clientv3.OpPut(s.conn.keys.order(o.Host, inst.ID), s.conn.encodeOrder(o)),
		)...).Commit()
	if err != nil {
		return inst, s.conn.wrap(err, "write the order of instance %s", inst.ID)
	}
	if !done.Succeeded {
		return inst, croft.Errorf(croft.Conflict, "instance %s was changed by another request", inst.ID)
	}
	next.Revision = done.Header.Revision
	return next, nil
}

// Bury implements schedule.Records: record and name are removed immediately, and the tombstone stays until the host
// returns. For a lost instance it replaces the order to leave the instance off, unless an operator has removed that.
func (s *Instances) Bury(ctx context.Context, inst croft.Instance, o croft.Order) error {
	k := s.conn.keys
	departures, err := s.conn.endDepartures(ctx, inst, croft.WantGone, o.Host)
	if err != nil {
		return err
	}
	ops := append(k.removeRecord(inst), departures...)
	if o.Host != "" {
		put := clientv3.OpPut(k.order(o.Host, inst.ID), s.conn.encodeOrder(o))
		if inst.State == croft.StateLost {
			// Existence is enough: while the record exists, no other instance has this UUID.
			put = clientv3.OpTxn([]clientv3.Cmp{exists(k.order(o.Host, inst.ID))}, []clientv3.Op{put}, nil)
		}
		ops = append(ops, put)
	}
	done, err := s.conn.etcd.Txn(ctx).If(unchanged(k.instance(inst.ID), inst.Revision)).Then(ops...).Commit()
	if err != nil {
		return s.conn.wrap(err, "remove the record of instance %s", inst.ID)
	}
	if !done.Succeeded {
		return croft.Errorf(croft.Conflict, "instance %s was changed by another request", inst.ID)
	}
	return nil
}
