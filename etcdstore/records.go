package etcdstore

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/schedule"
)

var (
	_ schedule.Records = (*Store)(nil)
	_ schedule.View    = (*Store)(nil)
)

// Create implements schedule.Records.
func (s *Store) Create(ctx context.Context, inst croft.Instance) (croft.Instance, error) {
	if inst.Spec.Restart != "" && s.minor.Load() < restartMinor {
		return inst,
			croft.Errorf(croft.Invalid,
				"this cloud's croft is too old for restart policies: leave out --restart, or upgrade the cloud")
	}
	if err := inst.Project.Check(); err != nil { // it becomes part of keys
		return inst, err
	}
	session, lease, err := s.sessionKey(ctx)
	if err != nil {
		return inst, err
	}
	inst.State, inst.Session = croft.StateScheduling, session
	record, name := s.keys.instance(inst.ID), s.keys.name(inst.Project, inst.Name)
	done, err := s.etcd.Txn(ctx).
		If(absent(record), absent(name)).
		Then(
			clientv3.OpPut(record, encode(withoutUserData(inst))),
			userData{s.conn}.putUserData(inst),
			clientv3.OpPut(name, string(inst.ID)),
			clientv3.OpPut(s.keys.session(session), "", clientv3.WithLease(lease)),
		).
		Else(clientv3.OpGet(name)).Commit()
	if err != nil {
		s.forgetLost(err, lease)
		s.retireSession(session) // the record may be written already, or later
		return inst, s.wrap(err, "write the record of instance %s", inst.ID)
	}
	if !done.Succeeded {
		if holder := done.Responses[0].GetResponseRange().Kvs; len(holder) > 0 &&
			string(holder[0].Value) != string(inst.ID) {
			return inst,
				croft.Errorf(croft.Conflict, "the name %s is taken by instance %s; choose another or destroy that one",
					inst.Name, holder[0].Value)
		}
		return inst, croft.Errorf(croft.Conflict, "there is an instance %s already; choose another UUID or none",
			inst.ID)
	}
	inst.Revision = done.Header.Revision
	return inst, nil
}

// Assign implements schedule.Records. The transaction compares the life of the host and of the session. So no
// order is written for a host that has just gone, nor by a suspended scheduler whose request is being undone by
// others.
func (s *Store) Assign(ctx context.Context, inst croft.Instance, o croft.Order) (croft.Instance, error) {
	record := s.keys.instance(inst.ID)
	next := inst
	next.State, next.Host, next.Generation, next.Session = croft.StateScheduled, o.Host, o.Generation, ""
	stored, o, more := next, o, []clientv3.Op(nil)
	if len(inst.Spec.UserData) > 0 {
		var err error
		if stored, o, more, err = (userData{s.conn}).keepUserData(ctx, next, o); err != nil {
			return inst, err
		}
	}
	done, err := s.etcd.Txn(ctx).
		If(append(s.keys.groups().admitted(next),
			unchanged(record, inst.Revision),
			exists(s.keys.session(inst.Session)),
			exists(s.keys.alive(o.Host)),
			absent(s.keys.drained(o.Host)),
			absent(s.keys.order(o.Host, inst.ID)),
		)...).
		Then(append(append(more, s.keys.groups().join(next)...),
			clientv3.OpPut(record, encode(stored)),
			clientv3.OpPut(s.keys.order(o.Host, inst.ID), s.encodeOrder(o)),
		)...).
		Else(append([]clientv3.Op{
			clientv3.OpGet(record),
			clientv3.OpGet(s.keys.alive(o.Host)),
			clientv3.OpGet(s.keys.drained(o.Host)),
			clientv3.OpGet(s.keys.session(inst.Session)),
		}, s.keys.groups().get(next)...)...).Commit()
	if err != nil {
		return inst, s.wrap(err, "write the order of instance %s", inst.ID)
	}
	if !done.Succeeded {
		return inst, refused(inst, o.Host, done)
	}
	next.Revision = done.Header.Revision
	return next, nil
}

// refused says which comparison of Assign failed.
func refused(inst croft.Instance, host croft.HostID, done *clientv3.TxnResponse) error {
	record := done.Responses[0].GetResponseRange().Kvs
	switch {
	case len(record) == 0 || record[0].ModRevision != inst.Revision:
		return croft.Errorf(croft.Conflict, "instance %s was changed by somebody else while it was being scheduled",
			inst.ID)
	case done.Responses[3].GetResponseRange().Count == 0:
		return croft.Errorf(croft.Conflict,
			"the lease of the scheduler of instance %s ran out, as after a pause of this machine, so that its request is being undone; try again", inst.ID)
	case done.Responses[1].GetResponseRange().Count == 0:
		return croft.Errorf(croft.Unavailable, "host %s has gone silent", host)
	case done.Responses[2].GetResponseRange().Count > 0:
		return croft.Errorf(croft.Unavailable, "host %s is being drained", host)
	}
	for i, a := range inst.Spec.Affinities {
		if err := a.Admit(host, membersOf(done.Responses[4+i].GetResponseRange().Kvs)); err != nil {
			return fmt.Errorf("host %s: %w", host, err)
		}
	}
	return croft.Errorf(croft.Unavailable, "host %s still holds an older order for instance %s", host, inst.ID)
}

// Fence implements schedule.Records, audit.Records and hosts.Instances: it rewrites an unchanged record as it
// is. Any write of unknown outcome that compares the previous revision has been done by then, as the result
// shows, or never will be.
func (s *Store) Fence(ctx context.Context, inst croft.Instance) (croft.Instance, error) {
	if inst.Revision == 0 {
		return inst, croft.Errorf(croft.Conflict, "instance %q was never written", inst.ID)
	}
	record := s.keys.instance(inst.ID)
	done, err := s.etcd.Txn(ctx).
		If(unchanged(record, inst.Revision)).
		Then(clientv3.OpPut(record, "", clientv3.WithIgnoreValue()), clientv3.OpGet(record)).
		Else(clientv3.OpGet(record)).Commit()
	if err != nil {
		s.retireSession(inst.Session)
		return inst, s.wrap(err, "settle the record of instance %s", inst.ID)
	}
	now := done.Responses[len(done.Responses)-1].GetResponseRange().Kvs
	if len(now) == 0 {
		return inst, croft.Errorf(croft.NotFound, "no instance %s", inst.ID)
	}
	settled, err := s.decodeInstance(now[0])
	settled.Spec.UserData = inst.Spec.UserData // it is stored apart, and never changes
	return settled, err
}

// Reorder implements schedule.Records.
func (s *Store) Reorder(ctx context.Context, inst croft.Instance, o croft.Order) (croft.Instance, error) {
	record := s.keys.instance(inst.ID)
	next := inst
	next.Generation, next.Rebooted, next.Rebuilt = o.Generation, o.Rebooted, o.Rebuilt
	if o.Want == croft.WantGone {
		next.State = croft.StateDestroying
	}
	stored, o, more, err := userData{s.conn}.keepUserData(ctx, next, o)
	if err != nil {
		return inst, err
	}
	done, err := s.etcd.Txn(ctx).
		If(unchanged(record, inst.Revision)).
		Then(append(more,
			clientv3.OpPut(record, encode(stored)),
			clientv3.OpPut(s.keys.order(o.Host, inst.ID), s.encodeOrder(o)),
		)...).Commit()
	if err != nil {
		return inst, s.wrap(err, "write the order of instance %s", inst.ID)
	}
	if !done.Succeeded {
		return inst, croft.Errorf(croft.Conflict, "instance %s was changed by somebody else", inst.ID)
	}
	next.Revision = done.Header.Revision
	return next, nil
}

// Bury implements schedule.Records: record and name are removed at once, the tombstone stays for the host's
// return.
func (s *Store) Bury(ctx context.Context, inst croft.Instance, o croft.Order) error {
	ops := s.removeRecord(inst)
	if o.Host != "" {
		ops = append(ops, clientv3.OpPut(s.keys.order(o.Host, inst.ID), s.encodeOrder(o)))
	}
	done, err := s.etcd.Txn(ctx).If(unchanged(s.keys.instance(inst.ID), inst.Revision)).Then(ops...).Commit()
	if err != nil {
		return s.wrap(err, "remove the record of instance %s", inst.ID)
	}
	if !done.Succeeded {
		return croft.Errorf(croft.Conflict, "instance %s was changed by somebody else", inst.ID)
	}
	return nil
}
