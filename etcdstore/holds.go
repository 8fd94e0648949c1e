package etcdstore

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
)

// Hold implements schedule.Holds.
func (s *Instances) Hold(ctx context.Context, inst croft.Instance, host croft.HostID) (croft.Instance, error) {
	next := inst
	next.State, next.Host, next.Session = croft.StateHeld, host, ""
	return s.place(ctx, inst, next, withoutUserData(next), nil)
}

// Use implements schedule.Holds.
func (s *Instances) Use(ctx context.Context, inst croft.Instance, o croft.Order) (croft.Instance, error) {
	k := s.conn.keys
	next := inst
	next.State, next.Generation = croft.StateScheduled, o.Generation
	stored, o, more, err := userData{s.conn}.keepUserData(ctx, next, o)
	if err != nil {
		return inst, err
	}
	if len(next.Spec.UserData) > 0 && len(more) == 0 { // the hold may have stored user-data already
		more = append(more, userData{s.conn}.putUserData(next))
	}
	record := k.instance(inst.ID)
	done, err := s.conn.etcd.Txn(ctx).
		// Existence is enough: a host that returned with its UUID still has the claim.
		If(unchanged(record, inst.Revision), exists(k.alive(o.Host)), absent(k.drained(o.Host))).
		Then(append(more, clientv3.OpPut(record, encode(stored)),
			clientv3.OpPut(k.order(o.Host, inst.ID), s.conn.encodeOrder(o)))...).
		Else(clientv3.OpGet(record)).Commit()
	if err != nil {
		return inst, s.conn.wrap(err, "write the order of instance %s", inst.ID)
	}
	if done.Succeeded {
		next.Revision = done.Header.Revision
		return next, nil
	}
	now := done.Responses[0].GetResponseRange().Kvs
	if len(now) == 0 || now[0].ModRevision != inst.Revision {
		return inst, croft.Errorf(croft.Conflict, "instance %s was changed by another request", inst.ID)
	}
	return inst, croft.Errorf(croft.Unavailable,
		"the host of the claim is silent or being drained: wait for it, or release the claim and create another")
}

// Abandon implements schedule.Holds and audit.Shared.
func (s *Instances) Abandon(ctx context.Context, inst croft.Instance) (croft.Instance, error) {
	next := inst
	next.State, next.Session = croft.StateScheduling, ""
	return s.rewrite(ctx, inst, next)
}

// Abandon implements audit.Shared.
func (s *Turn) Abandon(ctx context.Context, inst croft.Instance) (croft.Instance, error) {
	return (&Instances{conn: s.conn}).Abandon(ctx, inst)
}
