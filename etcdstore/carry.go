package etcdstore

import (
	"context"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
)

// A move with the disk has three transactions. Carry orders the source to leave and the target to arrive; the record
// stays with the source. Arrived makes the instance the target's once the disk is there; the source keeps its order,
// its claim and its copy. HandOver turns the order of the source into a tombstone once the guest runs on the target.
// Until Arrived, Uncarry leads back to the source. After it, each transaction that prevents HandOver ends the order of
// the source itself, with endDepartures.

// Carry implements hosts.Instances.
func (s *Instances) Carry(ctx context.Context, inst croft.Instance, leaving, arriving croft.Order) (croft.Instance,
	error) {
	if s.conn.minor.Load() < movesMinor {
		return inst, croft.Errorf(croft.Invalid,
			"this cloud's croft is too old for moves with the disk: upgrade the cloud")
	}
	k := s.conn.keys
	next := inst
	next.Copying, next.Unmoved, next.Generation = true, "", arriving.Generation
	leaving.Spec.UserData, arriving.Spec.UserData = nil, nil // agents that carry read it by its key
	// The record of the instance is rewritten with each attachment, so it has no other volumes.
	held, hold := k.volumes().Carried(inst.Volumes)
	if len(inst.Volumes) == 0 {
		held = []clientv3.Cmp{k.volumes().NoneAttached(inst.ID)}
	}
	done, err := s.conn.etcd.Txn(ctx).
		If(append(slices.Concat(asChosen(k, next), held, k.addressFree(inst, arriving.Host)),
			unchanged(k.instance(inst.ID), inst.Revision),
			// Existence is enough: an agent that returned with the host's UUID carries out orders like the former one.
			exists(k.alive(leaving.Host)),
			// Existence is enough, see above.
			exists(k.alive(arriving.Host)),
			absent(k.drained(arriving.Host)),
			absent(k.order(arriving.Host, inst.ID)),
		)...).
		Then(append(append(hold, k.takeAddress(inst, arriving.Host)...),
			clientv3.OpPut(k.instance(inst.ID), encode(next)),
			clientv3.OpPut(k.order(leaving.Host, inst.ID), s.conn.encodeOrder(leaving)),
			clientv3.OpPut(k.order(arriving.Host, inst.ID), s.conn.encodeOrder(arriving)))...).
		Else(slices.Concat([]clientv3.Op{clientv3.OpGet(k.instance(inst.ID)),
			clientv3.OpGet(k.order(arriving.Host, inst.ID))}, readChosen(k, next),
			k.readAddress(inst, arriving.Host))...).Commit()
	if err != nil {
		return inst, s.conn.wrap(err, "write the orders that move instance %s", inst.ID)
	}
	if !done.Succeeded {
		if record := done.Responses[0].GetResponseRange().Kvs; len(record) == 0 ||
			record[0].ModRevision != inst.Revision {
			return inst, changedMeanwhile(inst.ID)
		}
		if err := stale(next, done.Responses[2:]); err != nil {
			return inst, err
		}
		if err := s.conn.occupied(arriving.Host, done.Responses[1]); err != nil {
			return inst, err
		}
		if err := addressTaken(inst, arriving.Host, done.Responses[2+len(readChosen(k, next)):]); err != nil {
			return inst, err
		}
		return inst, croft.Errorf(croft.Unavailable,
			"host %s or its own is silent, the former is drained, or a volume was attached or changed", arriving.Host)
	}
	next.Revision = done.Header.Revision
	return next, nil
}

func changedMeanwhile(id croft.InstanceID) error {
	return croft.Errorf(croft.Conflict, "instance %s was changed by another request while it was being moved", id)
}

// carried is what a transaction of a move with the disk builds on.
type carried struct {
	inst             croft.Instance
	leaving, arrived croft.Order
}

// unchanged compares everything that was read.
func (c carried) unchanged(k keys) []clientv3.Cmp {
	return []clientv3.Cmp{
		unchanged(k.instance(c.inst.ID), c.inst.Revision),
		unchanged(k.order(c.leaving.Host, c.inst.ID), c.leaving.Revision),
		unchanged(k.order(c.arrived.Host, c.inst.ID), c.arrived.Revision),
	}
}

// readCarried reads a record and the instance's orders on two hosts. Conflict: one of the three is missing.
func (s *conn) readCarried(ctx context.Context, id croft.InstanceID, from, to croft.HostID) (c carried, err error) {
	k := s.keys
	got, err := s.etcd.Txn(ctx).Then(clientv3.OpGet(k.instance(id)), clientv3.OpGet(k.order(from, id)),
		clientv3.OpGet(k.order(to, id))).Commit()
	if err != nil {
		return c, s.wrap(err, "read the move of instance %s", id)
	}
	for _, r := range got.Responses {
		if len(r.GetResponseRange().Kvs) == 0 {
			return c, changedMeanwhile(id)
		}
	}
	if c.inst, err = s.decodeInstance(got.Responses[0].GetResponseRange().Kvs[0]); err != nil {
		return c, err
	}
	if c.leaving, err = s.decodeOrder(got.Responses[1].GetResponseRange().Kvs[0]); err != nil {
		return c, err
	}
	c.arrived, err = s.decodeOrder(got.Responses[2].GetResponseRange().Kvs[0])
	return c, err
}

// Uncarry implements hosts.Instances.
func (s *Instances) Uncarry(ctx context.Context, inst croft.Instance, why string) error {
	c, err := s.conn.readCarried(ctx, inst.ID, inst.Host, inst.Moving)
	if err != nil {
		return err
	}
	if !inst.Copying || c.inst.Revision != inst.Revision {
		return changedMeanwhile(inst.ID)
	}
	c.inst.TakesFrom, c.leaving.TakesFrom = inst.TakesFrom, inst.TakesFrom
	return s.conn.uncarry(ctx, c, why)
}

// uncarry gives the source its former goal again, and the target a tombstone for what it has copied.
func (s *conn) uncarry(ctx context.Context, c carried, why string) error {
	if c.leaving.Want != croft.WantLeaving || c.leaving.Move == nil {
		return changedMeanwhile(c.inst.ID)
	}
	k, next, back, tombstone := s.keys, c.inst, c.leaving, c.arrived
	next.Copying, next.Moving, next.Unmoved = false, "", why
	next.Generation++
	back.Want, back.Move, back.Generation = c.leaving.Move.Then, nil, next.Generation
	tombstone.Want, tombstone.Generation = croft.WantGone, next.Generation // Move says which files are the move's
	return s.carry(ctx, c, append(k.dropAddress(c.inst, tombstone.Host),
		clientv3.OpPut(k.instance(next.ID), encode(next)),
		clientv3.OpPut(k.order(back.Host, next.ID), s.encodeOrder(back)),
		clientv3.OpPut(k.order(tombstone.Host, next.ID), s.encodeOrder(tombstone)))...)
}

// endArrival returns the tombstone for what the target of a move with the disk has copied, because the instance ends,
// and frees the chosen address there; none if inst is not being moved so. The transaction compares the record, without
// which the order to arrive does not change.
func (s *conn) endArrival(ctx context.Context, inst croft.Instance, generation int64) ([]clientv3.Op, error) {
	if !inst.Copying {
		return nil, nil
	}
	free := s.keys.dropAddress(inst, inst.Moving)
	key := s.keys.order(inst.Moving, inst.ID)
	got, err := s.etcd.Get(ctx, key)
	if err != nil || len(got.Kvs) == 0 {
		return free, s.wrapped(err, "read the move of the instance")
	}
	tombstone, err := s.decodeOrder(got.Kvs[0])
	tombstone.Want, tombstone.Generation = croft.WantGone, generation
	return append(free, clientv3.OpPut(key, s.encodeOrder(tombstone))), err
}

// endDepartures returns operations that give this goal to the former hosts of inst that still have their copy of its
// disk; of a lost instance, also to the ones that keep it as a leftover. The caller writes the orders of the hosts in
// except. The transaction compares the record, so that only HandOver, or an operator who removes the leftover, may have
// changed those orders meanwhile.
func (s *conn) endDepartures(ctx context.Context, inst croft.Instance, goal croft.Want, except ...croft.HostID) (
	ops []clientv3.Op, err error) {
	for _, host := range inst.Former() {
		if slices.Contains(except, host) {
			continue
		}
		key := s.keys.order(host, inst.ID)
		got, err := s.etcd.Get(ctx, key)
		if err != nil {
			return nil, s.wrap(err, "read the order of instance %s on its former host", inst.ID)
		}
		if len(got.Kvs) == 0 {
			continue
		}
		o, err := s.decodeOrder(got.Kvs[0])
		if err != nil {
			return nil, err
		}
		if o.Want != croft.WantLeaving && (o.Want != croft.WantLeft || inst.State != croft.StateLost) {
			continue
		}
		was := o.Revision
		if o.Move != nil {
			for _, v := range croft.LocalVolumes(o.Move.Volumes) {
				o.Left = append(o.Left, v.ID)
			}
		}
		o.Want, o.Move, o.Generation = goal, nil, o.Generation+1
		ops = append(ops, clientv3.OpTxn([]clientv3.Cmp{unchanged(key, was)},
			[]clientv3.Op{clientv3.OpPut(key, s.encodeOrder(o))}, nil))
	}
	return ops, nil
}

// carry writes if nothing has changed since c was read. Conflict.
func (s *conn) carry(ctx context.Context, c carried, ops ...clientv3.Op) error {
	return s.carryIf(ctx, c, nil, ops...)
}

// carryIf is carry with more comparisons.
func (s *conn) carryIf(ctx context.Context, c carried, more []clientv3.Cmp, ops ...clientv3.Op) error {
	done, err := s.etcd.Txn(ctx).If(append(c.unchanged(s.keys), more...)...).Then(ops...).Commit()
	if err != nil {
		return s.wrap(err, "write the orders that move instance %s", c.inst.ID)
	}
	if !done.Succeeded {
		return changedMeanwhile(c.inst.ID)
	}
	return nil
}

// Origin implements compute.Orders.
func (s *Orders) Origin(ctx context.Context, o croft.Order) (croft.Host, error) {
	if o.Move == nil {
		return croft.Host{}, croft.Errorf(croft.NotFound, "instance %s comes from no host", o.Instance)
	}
	known, err := (&Registry{conn: s.conn}).Hosts(ctx, o.Move.Host)
	if err != nil {
		return croft.Host{}, err
	}
	h, ok := known[o.Move.Host]
	if !ok {
		return h, croft.Errorf(croft.Unavailable, "host %s, where its disk is, is not on record", o.Move.Host)
	}
	return croft.Host{ID: h.ID, Name: h.Name, API: h.API, Alive: h.Alive}, nil
}

// Arrived implements compute.Orders.
func (s *Orders) Arrived(ctx context.Context, o croft.Order, failure string) error {
	if o.Move == nil {
		return changedMeanwhile(o.Instance)
	}
	from, to := o.Move.Host, o.Host
	if o.Want == croft.WantLeaving && failure != "" {
		from, to = to, from
	}
	c, err := s.conn.readCarried(ctx, o.Instance, from, to)
	if err != nil {
		return err
	}
	current := c.arrived.Revision == o.Revision || failure != "" && c.leaving.Revision == o.Revision
	if !c.inst.Copying || c.inst.Host != from || c.inst.Moving != to || c.leaving.Want != croft.WantLeaving ||
		!current || c.arrived.Want != croft.WantArriving || c.arrived.Move == nil {
		return changedMeanwhile(o.Instance)
	}
	if failure != "" {
		return s.conn.uncarry(ctx, c, failure)
	}
	k, next, order := s.conn.keys, c.inst, c.arrived
	next.Host, next.Moving, next.Copying, next.MovedFrom, next.LeftBefore = o.Host, "", false, c.inst.Host, nil
	next.Generation++
	order.Want, order.Move, order.Generation = c.arrived.Move.Then, nil, next.Generation
	order.MovedFrom, order.LeftBefore = next.MovedFrom, nil
	next.TakesFrom, order.TakesFrom = nil, nil // its former host has released the disk
	// A host before the former one may still have a copy, which is not needed: the two last ones have the disk.
	before, err := s.conn.endDepartures(ctx, c.inst, croft.WantGone, from, to)
	if err != nil {
		return err
	}
	compares, moved, err := s.conn.moveVolumes(ctx, c)
	if err != nil {
		return err
	}
	groups := append(k.groups().leave(c.inst), k.groups().join(next)...)
	left := k.dropAddress(c.inst, c.inst.Host)
	return s.conn.carryIf(ctx, c, compares, slices.Concat(before, moved, groups, left,
		[]clientv3.Op{clientv3.OpPut(k.instance(next.ID), encode(next)),
			clientv3.OpPut(k.order(order.Host, next.ID), s.conn.encodeOrder(order))})...)
}

// moveVolumes returns the comparisons and operations that make the volumes of a move those of its target. Conflict: one
// is not attached to the instance any more.
func (s *conn) moveVolumes(ctx context.Context, c carried) (compares []clientv3.Cmp, ops []clientv3.Op, err error) {
	var reads []clientv3.Op
	for _, v := range c.arrived.Move.Volumes {
		reads = append(reads, s.keys.volumes().ReadRecord(v))
	}
	if len(reads) == 0 {
		return nil, nil, nil
	}
	got, err := s.etcd.Txn(ctx).Then(reads...).Commit()
	if err != nil {
		return nil, nil, s.wrap(err, "read the volumes of instance %s", c.inst.ID)
	}
	for _, r := range got.Responses {
		stored := r.GetResponseRange().Kvs
		if len(stored) == 0 {
			return nil, nil, changedMeanwhile(c.inst.ID)
		}
		var v croft.Volume
		if err := s.decode(stored[0].Key, stored[0].Value, &v); err != nil {
			return nil, nil, err
		}
		if v.Revision = stored[0].ModRevision; v.Instance != c.inst.ID {
			return nil, nil, changedMeanwhile(c.inst.ID)
		}
		same, move := s.keys.volumes().Moved(v, c.arrived.Host)
		compares, ops = append(compares, same), append(ops, move...)
	}
	return compares, ops, nil
}

// HandOver implements compute.Orders.
func (s *Orders) HandOver(ctx context.Context, o croft.Order) error {
	k := s.conn.keys
	got, err := s.conn.etcd.Get(ctx, k.instance(o.Instance))
	if err != nil {
		return s.conn.wrap(err, "read the record of instance %s", o.Instance)
	}
	if len(got.Kvs) == 0 {
		return changedMeanwhile(o.Instance)
	}
	inst, err := s.conn.decodeInstance(got.Kvs[0])
	if err != nil {
		return err
	}
	if inst.Host != o.Host || inst.MovedFrom != o.MovedFrom {
		return changedMeanwhile(o.Instance)
	}
	ops, err := s.conn.endDepartures(ctx, inst, croft.WantGone, o.Host)
	if err != nil || len(ops) == 0 {
		return err
	}
	done, err := s.conn.etcd.Txn(ctx).If(unchanged(k.instance(inst.ID), inst.Revision),
		unchanged(k.order(o.Host, inst.ID), o.Revision)).Then(ops...).Commit()
	if err == nil && !done.Succeeded {
		return changedMeanwhile(o.Instance)
	}
	return s.conn.wrapped(err, "hand a moved instance over")
}
