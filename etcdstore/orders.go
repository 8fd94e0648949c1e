package etcdstore

import (
	"context"
	"errors"
	"slices"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/compute"
	"croft/hosts"
	"croft/schedule"
)

// Orders stores the orders for the agents of hosts, and their observations.
type Orders struct {
	conn *conn

	mu      sync.Mutex
	waiting []*observing // they wait for the write in flight
	writing bool
}

var (
	_ compute.Orders = (*Orders)(nil)
	_ hosts.Orders   = (*Orders)(nil)
)

// WatchOrders implements compute.Orders. It also wakes instances whose orders disappeared while the watch was broken.
func (s *Orders) WatchOrders(ctx context.Context, host croft.HostID, wake func(croft.InstanceID)) error {
	known := map[croft.InstanceID]bool{}
	return s.conn.follow(ctx, s.conn.keys.orders(host),
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
func (s *Orders) Order(ctx context.Context, host croft.HostID, id croft.InstanceID) (croft.Order, error) {
	got, err := s.conn.etcd.Txn(ctx).Then(clientv3.OpGet(s.conn.keys.order(host, id)),
		clientv3.OpGet(s.conn.keys.userData(id)), s.conn.keys.volumes().ReadAttached(id),
		clientv3.OpGet(s.conn.keys.dead(host))).Commit()
	if err != nil {
		return croft.Order{}, s.conn.wrap(err, "read the order of instance %s", id)
	}
	found := got.Responses[0].GetResponseRange().Kvs
	if len(found) == 0 {
		return croft.Order{}, croft.Errorf(croft.NotFound, "no order for instance %s on host %s", id, host)
	}
	o, err := s.conn.decodeOrder(found[0])
	if death := got.Responses[3].GetResponseRange().Kvs; len(death) > 0 {
		o.HostDeath = death[0].CreateRevision
	}
	if err == nil && !o.Want.Withdrawn() {
		fillUserData(&o.Spec, got.Responses[1].GetResponseRange().Kvs)
	}
	if err == nil {
		for _, kv := range got.Responses[2].GetResponseRange().Kvs {
			o.Volumes = append(o.Volumes, croft.VolumeID(last(kv.Key)))
		}
	}
	return o, err
}

// occupied returns why an instance cannot come to a host, according to the answer to a read of its order there; nil:
// it has no order. Unavailable.
func (s *conn) occupied(host croft.HostID, answer *etcdserverpb.ResponseOp) error {
	kvs := answer.GetResponseRange().Kvs
	if len(kvs) == 0 {
		return nil
	}
	reason := schedule.ErrRemains
	if o, err := s.decodeOrder(kvs[0]); err == nil && o.Want == croft.WantLeft {
		reason = schedule.ErrLeftover
	}
	return croft.Errorf(croft.Unavailable, "host %s %w", host, reason)
}

func (s *conn) decodeOrder(kv *mvccpb.KeyValue) (croft.Order, error) {
	var o croft.Order
	err := s.decode(kv.Key, kv.Value, &o)
	o.Revision, o.CreateRevision = kv.ModRevision, kv.CreateRevision
	return o, err
}

// Remains implements compute.Orders. The tombstone of a host that was forgotten, or declared dead, does not count as
// remaining; it stays until the host returns. Nor does a leftover: its guest is off, and an operator decides about it.
func (s *Orders) Remains(ctx context.Context, host croft.HostID, id croft.InstanceID) (bool, error) {
	got, err := s.conn.etcd.Txn(ctx).Then(
		clientv3.OpGet(s.conn.keys.order(host, id)),
		clientv3.OpGet(s.conn.keys.host(host), clientv3.WithCountOnly()),
		clientv3.OpGet(s.conn.keys.dead(host)),
	).Commit()
	if err != nil {
		return false, s.conn.wrap(err, "find the remains of instance %s on host %s", id, host)
	}
	for _, kv := range got.Responses[2].GetResponseRange().Kvs {
		death, err := s.conn.decodeDeath(kv)
		if err != nil || !death.Declared.IsZero() {
			return false, err
		}
	}
	for _, kv := range got.Responses[0].GetResponseRange().Kvs {
		o, err := s.conn.decodeOrder(kv)
		return o.Want != croft.WantLeft && got.Responses[1].GetResponseRange().Count > 0, err
	}
	return false, nil
}

// Observed implements compute.Orders.
func (s *Orders) Observed(ctx context.Context, host croft.HostID, id croft.InstanceID) (croft.Observation, error) {
	var o croft.Observation
	got, err := s.conn.etcd.Get(ctx, s.conn.keys.observed(host, id))
	if err != nil {
		return o, s.conn.wrap(err, "read the observation of instance %s", id)
	}
	if len(got.Kvs) == 0 {
		return o, croft.Errorf(croft.NotFound, "instance %s was not observed on host %s", id, host)
	}
	return o, s.conn.decode(got.Kvs[0].Key, got.Kvs[0].Value, &o)
}

// observing is an observation that waits to be written.
type observing struct {
	croft.Observation
	value string
	done  chan error
}

// Observe implements compute.Orders. Observations that arrive during a write share the next one. If ctx ends first, an
// observation in the write in flight may still be stored, but always before a later one of the same instance.
func (s *Orders) Observe(ctx context.Context, o croft.Observation) error {
	one := &observing{o, encode(o), make(chan error, 1)}
	s.mu.Lock()
	s.waiting = append(s.waiting, one)
	if !s.writing {
		s.writing = true
		s.conn.work.Go(func() { s.writeObservations(context.WithoutCancel(ctx)) })
	}
	s.mu.Unlock()
	select {
	case err := <-one.done:
		return err
	case <-ctx.Done():
		s.mu.Lock()
		s.waiting = slices.DeleteFunc(s.waiting, func(o *observing) bool { return o == one })
		s.mu.Unlock()
		return s.conn.wrap(ctx.Err(), "write the observation of instance %s", o.Instance)
	}
}

// writeObservations writes the waiting observations, until none is left.
func (s *Orders) writeObservations(ctx context.Context) {
	for {
		s.mu.Lock()
		var batch []*observing
		batch, s.waiting = nextObservations(s.waiting)
		s.writing = len(batch) > 0
		s.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		s.observe(ctx, batch)
	}
}

const (
	// observationsAtOnce is the maximum number of observations in one transaction. Together with the operations of each
	// observation it stays below the limit of a separate etcd, which is 128 by default.
	observationsAtOnce = 64
	// observationBytes is the maximum of their total size; etcd accepts 1.5 MiB.
	observationBytes = 512 << 10
)

// nextObservations divides the observations into the next transaction and the others. A transaction writes at
// most one observation of an instance.
func nextObservations(waiting []*observing) (batch, rest []*observing) {
	size, instances := 0, map[croft.InstanceID]bool{}
	for i, one := range waiting {
		size += len(one.value)
		if len(batch) == observationsAtOnce || size > observationBytes && len(batch) > 0 {
			return batch, append(rest, waiting[i:]...)
		}
		if instances[one.Instance] {
			rest = append(rest, one)
			continue
		}
		instances[one.Instance] = true
		batch = append(batch, one)
	}
	return batch, rest
}

// observe writes observations in one transaction, each if its order still exists. A late observation must not be stored
// for a later instance with the same UUID, so the identity of the order is compared; nor by an agent that does not know
// that its host was declared dead, so the identity of that declaration is.
func (s *Orders) observe(ctx context.Context, batch []*observing) {
	var each []clientv3.Op
	for _, o := range batch {
		order := s.conn.keys.order(o.Host, o.Instance)
		same := created(order, o.OrderCreated)
		if o.OrderCreated == 0 { // an agent of schema 1.7
			// Existence is enough: agents of schema 1.7 send no identity of the order.
			same = exists(order)
		}
		each = append(each, clientv3.OpTxn([]clientv3.Cmp{same, created(s.conn.keys.dead(o.Host), o.HostDeath)},
			[]clientv3.Op{clientv3.OpPut(s.conn.keys.observed(o.Host, o.Instance), o.value)}, nil))
	}
	done, err := s.conn.etcd.Txn(ctx).Then(each...).Commit()
	for i, o := range batch {
		switch {
		case err != nil:
			o.done <- s.conn.wrap(err, "write the observation of instance %s", o.Instance)
		case !done.Responses[i].GetResponseTxn().Succeeded:
			o.done <- croft.Errorf(croft.Conflict, "instance %s has no order any more, or its host was declared dead",
				o.Instance)
		default:
			o.done <- nil
		}
	}
}

// Forget implements compute.Orders. If the record has moved to another host meanwhile, as after a forced destroy, it
// does not belong to this order and stays.
func (s *Orders) Forget(ctx context.Context, o croft.Order) error {
	k := s.conn.keys
	order := k.order(o.Host, o.Instance)
	compares := []clientv3.Cmp{unchanged(order, o.Revision)}
	removals := []clientv3.Op{
		clientv3.OpDelete(order),
		clientv3.OpDelete(k.observed(o.Host, o.Instance)),
	}
	inst, err := (&Instances{conn: s.conn}).Instance(ctx, o.Instance)
	switch {
	case errors.Is(err, croft.NotFound):
		compares = append(compares, absent(k.instance(o.Instance)))
	case err != nil:
		return err
	default:
		compares = append(compares, unchanged(k.instance(o.Instance), inst.Revision))
		if inst.Host == o.Host {
			removals = append(removals, k.removeRecord(inst)...)
		}
	}
	done, err := s.conn.etcd.Txn(ctx).If(compares...).Then(removals...).Commit()
	if err != nil {
		return s.conn.wrap(err, "remove the record of instance %s", o.Instance)
	}
	if !done.Succeeded {
		return croft.Errorf(croft.Conflict, "instance %s changed while it was being forgotten", o.Instance)
	}
	return nil
}

// WatchObserved calls seen with every stored observation of all hosts, and with each new one until ctx ends. After a
// broken connection it may miss some observations and repeat others.
func (s *Orders) WatchObserved(ctx context.Context, seen func(croft.Observation)) error {
	return s.conn.follow(ctx, s.conn.keys.allObserved(), func() {}, func(kv *mvccpb.KeyValue, stored bool) {
		if !stored {
			return
		}
		var o croft.Observation
		if s.conn.decode(kv.Key, kv.Value, &o) == nil { // readers of the key itself get the error
			seen(o)
		}
	})
}
