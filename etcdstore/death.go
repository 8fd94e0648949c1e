package etcdstore

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
)

func (s *conn) decodeDeath(kv *mvccpb.KeyValue) (croft.Death, error) {
	var d croft.Death
	err := s.decode(kv.Key, kv.Value, &d)
	d.Revision, d.CreateRevision = kv.ModRevision, kv.CreateRevision
	return d, err
}

// BeginDeath implements hosts.Store.
func (s *Registry) BeginDeath(ctx context.Context, host croft.HostID) (croft.Death, error) {
	if s.conn.minor.Load() < deadMinor {
		return croft.Death{}, croft.Errorf(croft.Invalid, "this cloud's croft is too old to declare hosts dead: upgrade "+
			"the cloud")
	}
	k := s.conn.keys
	got, err := s.conn.etcd.Txn(ctx).Then(clientv3.OpGet(k.host(host)), clientv3.OpGet(k.drained(host)),
		clientv3.OpGet(k.dead(host))).Commit()
	if err != nil {
		return croft.Death{}, s.conn.wrap(err, "read the record of host %s", host)
	}
	known, drained, dead := got.Responses[0].GetResponseRange().Kvs, got.Responses[1].GetResponseRange().Kvs,
		got.Responses[2].GetResponseRange().Kvs
	switch {
	case len(known) == 0:
		return croft.Death{}, croft.Errorf(croft.NotFound, "there is no host %s", host)
	case len(dead) > 0:
		return s.conn.decodeDeath(dead[0])
	}
	d := croft.Death{Begun: time.Now().UTC().Truncate(time.Second), Drained: len(drained) > 0}
	same := absent(k.drained(host))
	ops := []clientv3.Op{clientv3.OpPut(k.dead(host), encode(d))}
	if d.Drained {
		same = unchanged(k.drained(host), drained[0].ModRevision)
	} else { // the transactions that write orders compare this key
		ops = append(ops, clientv3.OpPut(k.drained(host), d.Begun.Format(time.RFC3339)))
	}
	done, err := s.conn.etcd.Txn(ctx).If(created(k.host(host), known[0].CreateRevision), absent(k.dead(host)), same).
		Then(ops...).Commit()
	if err != nil {
		return croft.Death{}, s.conn.wrap(err, "begin the fence of host %s", host)
	}
	if !done.Succeeded {
		return croft.Death{}, croft.Errorf(croft.Conflict, "another request changed it meanwhile; try again")
	}
	d.Revision, d.CreateRevision = done.Header.Revision, done.Header.Revision
	return d, nil
}

// DeclareDead implements hosts.Store. It revokes the agent's lock and life in the same transaction, and then their
// lease, so that an agent that is alive in spite of the fence notices it. If the lease cannot be revoked, that agent
// learns of the declaration from the next order that it reads.
func (s *Registry) DeclareDead(ctx context.Context, host croft.HostID, d croft.Death,
	how croft.FenceResult) (croft.Death, error) {
	k := s.conn.keys
	next := d
	next.Declared, next.How = time.Now().UTC().Truncate(time.Second), how
	done, err := s.conn.etcd.Txn(ctx).If(unchanged(k.dead(host), d.Revision)).Then(
		clientv3.OpGet(k.agent(host)), clientv3.OpGet(k.alive(host)),
		clientv3.OpDelete(k.agent(host)), clientv3.OpDelete(k.alive(host)),
		clientv3.OpPut(k.dead(host), encode(next))).Commit()
	if err != nil {
		return d, s.conn.wrap(err, "declare host %s dead", host)
	}
	if !done.Succeeded {
		return d, croft.Errorf(croft.Conflict, "another request fences it, or has taken it back, meanwhile; try again")
	}
	next.Revision = done.Header.Revision
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	for _, read := range done.Responses[:2] {
		for _, kv := range read.GetResponseRange().Kvs {
			_, _ = s.conn.etcd.Revoke(end, clientv3.LeaseID(kv.Lease)) // best effort, see above
		}
	}
	return next, nil
}

// EndDeath implements hosts.Store.
func (s *Registry) EndDeath(ctx context.Context, host croft.HostID, d croft.Death) error {
	k := s.conn.keys
	ops := []clientv3.Op{clientv3.OpDelete(k.dead(host))}
	if !d.Drained {
		ops = append(ops, clientv3.OpDelete(k.drained(host)))
	}
	done, err := s.conn.etcd.Txn(ctx).If(unchanged(k.dead(host), d.Revision)).Then(ops...).Commit()
	if err == nil && !done.Succeeded {
		return croft.Errorf(croft.Conflict, "another request fences it, or has taken it back, meanwhile; try again")
	}
	return s.conn.wrapped(err, "take the host back")
}

// Leftovers implements hosts.Orders.
func (s *Orders) Leftovers(ctx context.Context, host croft.HostID) ([]croft.Status, error) {
	records := &Records{s.conn}
	e, err := records.HostEvidence(ctx, host)
	if err != nil {
		return nil, err
	}
	var all []croft.Status
	for _, o := range e.Orders {
		if o.Want != croft.WantLeft {
			continue
		}
		st := croft.Status{Instance: e.Instances[o.Instance], Order: &o}
		for _, seen := range e.Observations {
			if seen.Instance == o.Instance {
				st.Observation = &seen
			}
		}
		all = append(all, st)
	}
	return all, nil
}

// RemoveLeftover implements hosts.Orders.
func (s *Orders) RemoveLeftover(ctx context.Context, o croft.Order) error {
	key, was := s.conn.keys.order(o.Host, o.Instance), o.Revision
	o.Want = croft.WantGone
	o.Generation++
	o.Issued = time.Now().UTC()
	done, err := s.conn.etcd.Txn(ctx).If(unchanged(key, was)).
		Then(clientv3.OpPut(key, s.conn.encodeOrder(o))).Commit()
	if err == nil && !done.Succeeded {
		return croft.Errorf(croft.Conflict, "another request changed it meanwhile; look again")
	}
	return s.conn.wrapped(err, "order the removal of a leftover")
}
