package etcdstore

import (
	"context"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/compute"
	"croft/etcdstore/aggregates"
	"croft/hosts"
	"croft/schedule"
	"croft/trust"
)

// Registry stores the hosts: their records, which of them are alive, and which refuse orders.
type Registry struct {
	conn       *conn
	aggregates *aggregates.Aggregates
}

var (
	_ compute.Registry  = (*Registry)(nil)
	_ hosts.Store       = (*Registry)(nil)
	_ schedule.Registry = (*Registry)(nil)
	_ trust.Known       = (*Registry)(nil)
)

// storedHost is a host's record in its stored form: with its token, without fields that are derived from other keys.
type storedHost struct {
	croft.Host
	Token string `json:"token,omitempty"`
}

// PutHost implements compute.Registry.
func (s *Registry) PutHost(ctx context.Context, h croft.Host) error {
	h.Alive, h.Drained, h.Seen, h.Death = false, false, time.Time{}, nil
	if _, err := s.conn.etcd.Put(ctx, s.conn.keys.host(h.ID), encode(storedHost{h, h.Token})); err != nil {
		return s.conn.wrap(err, "write the record of host %s", h.ID)
	}
	return nil
}

// Hosts implements compute.Registry, hosts.Store, schedule.Registry and trust.Known.
func (s *Registry) Hosts(ctx context.Context, ids ...croft.HostID) (map[croft.HostID]croft.Host, error) {
	k := s.conn.keys
	var ops []clientv3.Op
	for _, id := range ids {
		ops = append(ops, clientv3.OpGet(k.host(id)), clientv3.OpGet(k.alive(id)), clientv3.OpGet(k.drained(id)),
			clientv3.OpGet(k.dead(id)))
	}
	if len(ids) == 0 {
		if all := s.copied(ctx); all != nil {
			return all, nil
		}
		for _, prefix := range []string{k.hosts(), k.allAlive(), k.allDrained(), k.allDead(), k.allSeen(),
			k.allTwins()} {
			ops = append(ops, clientv3.OpGet(prefix, clientv3.WithPrefix()))
		}
	}
	b := s.conn.newJoiner()
	for part := range slices.Chunk(ops, DefaultTxnOps) {
		got, err := s.conn.etcd.Txn(ctx).Then(part...).Commit()
		if err != nil {
			return nil, s.conn.wrap(err, "read hosts")
		}
		for _, r := range got.Responses {
			b.addAll(r.GetResponseRange().Kvs)
		}
	}
	_, err := b.join()
	return b.hosts, err
}

// Drain implements hosts.Store. The record of a death keeps that its host stays drained when it is taken back.
func (s *Registry) Drain(ctx context.Context, host croft.HostID) error {
	k := s.conn.keys
	key, now := k.drained(host), time.Now().UTC().Format(time.RFC3339)
	for range drainTries {
		done, err := s.conn.etcd.Txn(ctx).If(absent(k.dead(host)), absent(key)).Then(clientv3.OpPut(key, now)).
			Else(clientv3.OpGet(k.dead(host))).Commit()
		if err != nil {
			return s.conn.wrap(err, "drain the host")
		}
		if done.Succeeded || len(done.Responses[0].GetResponseRange().Kvs) == 0 {
			return nil
		}
		death, err := s.conn.decodeDeath(done.Responses[0].GetResponseRange().Kvs[0])
		if err != nil || death.Drained {
			return err
		}
		death.Drained = true
		done, err = s.conn.etcd.Txn(ctx).If(unchanged(k.dead(host), death.Revision)).
			Then(clientv3.OpPut(k.dead(host), encode(death))).Commit()
		if err != nil || done.Succeeded {
			return s.conn.wrapped(err, "drain the host")
		}
	}
	return croft.Errorf(croft.Conflict, "others fence the host, or take it back, meanwhile; try again")
}

// drainTries bounds how often Drain is repeated because the death of its host has changed.
const drainTries = 4

// Enable implements hosts.Store.
func (s *Registry) Enable(ctx context.Context, host croft.HostID) error {
	k := s.conn.keys
	done, err := s.conn.etcd.Txn(ctx).If(absent(k.dead(host))).Then(clientv3.OpDelete(k.drained(host))).Commit()
	if err == nil && !done.Succeeded {
		return croft.Errorf(croft.Conflict, "it was declared dead, or its fence began: `croft host fence --on` takes it "+
			"back")
	}
	return s.conn.wrapped(err, "enable the host")
}

// Accept implements hosts.Store.
func (s *Registry) Accept(ctx context.Context, host croft.HostID) error {
	key := s.conn.keys.host(host)
	got, err := s.conn.etcd.Get(ctx, key)
	if err != nil {
		return s.conn.wrap(err, "read the record of host %s", host)
	}
	if len(got.Kvs) == 0 {
		return croft.Errorf(croft.NotFound, "there is no host %s", host)
	}
	var h storedHost
	if err := s.conn.decode(got.Kvs[0].Key, got.Kvs[0].Value, &h); err != nil {
		return err
	}
	h.Place = ""
	done, err := s.conn.etcd.Txn(ctx).If(unchanged(key, got.Kvs[0].ModRevision)).Then(clientv3.OpPut(key,
		encode(h))).Commit()
	if err == nil && !done.Succeeded {
		return croft.Errorf(croft.Conflict, "its agent has just come back; look at `croft host list`")
	}
	return s.conn.wrapped(err, "accept the host")
}

// ForgetHost implements hosts.Store. It removes observations and all other data of the host, including its properties,
// tags and places in aggregates; its record is removed last. Tombstones and orders to leave instances off stay.
func (s *Registry) ForgetHost(ctx context.Context, host croft.HostID) error {
	k := s.conn.keys
	records := &Records{s.conn}
	b, err := records.HostEvidence(ctx, host)
	if err != nil {
		return err
	}
	for _, o := range b.Orders {
		if o.Want.Withdrawn() {
			continue
		}
		if inst, exists := b.Instances[o.Instance]; exists && inst.Host == host {
			return croft.Errorf(croft.Conflict, "instance %s is on the host", inst.Name)
		}
		if err := records.dropOrder(ctx, o); err != nil {
			return err
		}
	}
	return s.forget(ctx, host, []clientv3.Op{
		clientv3.OpDelete(k.observedOn(host), clientv3.WithPrefix()),
		clientv3.OpDelete(k.twins(host), clientv3.WithPrefix()),
		clientv3.OpDelete(k.drained(host)),
		clientv3.OpDelete(k.dead(host)),
		clientv3.OpDelete(k.seen(host)),
		clientv3.OpDelete(k.trust().join(host)),
		clientv3.OpDelete(k.trust().formerJoin(host)),
		clientv3.OpDelete(k.trust().joined(host)),
		clientv3.OpDelete(k.properties(host)),
		clientv3.OpDelete(k.policies().Host(host)),
		clientv3.OpDelete(k.host(host)),
	})
}

// forget removes a host from all aggregates. The last transaction also does more.
func (s *Registry) forget(ctx context.Context, host croft.HostID, more []clientv3.Op) error {
	for {
		compares, ops, further, err := s.aggregates.Forget(ctx, host)
		if err != nil {
			return err
		}
		if !further {
			ops = append(ops, more...)
		}
		done, err := s.conn.etcd.Txn(ctx).If(compares...).Then(ops...).Commit()
		if err != nil {
			return s.conn.wrap(err, "remove the host's record")
		}
		if done.Succeeded && !further {
			return nil
		}
	}
}
