package etcdstore

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/internal/kv"
	"croft/etcdstore/tenants"
	"croft/schedule/resize"
	"croft/tenant"
)

var _ resize.Records = (*Instances)(nil)

// BeginResize implements resize.Records.
func (s *Instances) BeginResize(ctx context.Context, inst croft.Instance, to croft.Resources) (croft.Instance, error) {
	if s.conn.minor.Load() < resizeMinor {
		return inst, croft.Errorf(croft.Invalid, "this cloud's croft is too old to resize instances: upgrade the cloud")
	}
	session, lease, err := s.conn.sessionKey(ctx)
	if err != nil {
		return inst, err
	}
	next := inst
	next.Resizing = &croft.Resizing{Resources: to, Session: session}
	record := s.conn.keys.instance(inst.ID)
	revision, err := s.projects.Write(ctx, tenants.ChargedWrite{
		Project: inst.Project, Amounts: tenant.AmountsOf(next).Minus(tenant.AmountsOf(inst)), ID: resizeEntry(inst),
		If: []clientv3.Cmp{unchanged(record, inst.Revision)},
		Write: append(s.keptUserData(inst), clientv3.OpPut(record, encode(withoutUserData(next))),
			clientv3.OpPut(s.conn.keys.session(session), "", clientv3.WithLease(lease))),
		Else: []clientv3.Op{clientv3.OpGet(record, clientv3.WithKeysOnly())},
		What: fmt.Sprintf("write the record of instance %s", inst.ID),
		Refused: func(answers []*etcdserverpb.ResponseOp) error {
			if now := kv.First(answers[0]); now == nil || now.ModRevision != inst.Revision {
				return croft.Errorf(croft.Conflict, "instance %s was changed by another request", inst.ID)
			}
			return nil
		},
	})
	if err != nil {
		if kv.MayBeWritten(err) {
			s.conn.forgetLost(err, lease)
			s.conn.retireSession(session) // the caretaker undoes the request if it was written
		}
		return inst, err
	}
	next.Revision = revision
	return next, nil
}

// resizeEntry names a change of an instance's charge.
func resizeEntry(inst croft.Instance) string {
	return fmt.Sprintf("resize-%s-%d", inst.ID, inst.Revision)
}

// Resize implements resize.Records.
func (s *Instances) Resize(ctx context.Context, inst croft.Instance, o croft.Order) (croft.Instance, error) {
	next := inst
	next.Spec.Resources, next.Spec.Query, next.Spec.Size = o.Spec.Resources, o.Spec.Query, o.Spec.Size
	next.Generation, next.Resized = o.Generation, o.Resized
	stored, o, more, err := userData{s.conn}.keepUserData(ctx, next, o)
	if err != nil {
		return inst, err
	}
	return s.repay(ctx, inst, next, stored,
		append(more, clientv3.OpPut(s.conn.keys.order(o.Host, inst.ID), s.conn.encodeOrder(o))))
}

// EndResize implements resize.Records.
func (s *Instances) EndResize(ctx context.Context, inst croft.Instance) (croft.Instance, error) {
	next := inst
	next.Resizing = nil
	return s.repay(ctx, inst, next, withoutUserData(next), s.keptUserData(inst))
}

// keptUserData returns the operations that keep user-data which a program of schema 1.1 stored in the record.
func (s *Instances) keptUserData(inst croft.Instance) []clientv3.Op {
	if len(inst.Spec.UserData) == 0 {
		return nil
	}
	return []clientv3.Op{userData{s.conn}.putUserData(inst)}
}

// repay replaces a record by one with a smaller charge, and repays the project the difference.
func (s *Instances) repay(ctx context.Context, inst, next, stored croft.Instance, more []clientv3.Op) (
	croft.Instance, error) {
	record := s.conn.keys.instance(inst.ID)
	back := tenants.Charge{Project: inst.Project, Amounts: tenant.AmountsOf(inst).Minus(tenant.AmountsOf(next))}
	ops := append(more, clientv3.OpPut(record, encode(stored)), s.conn.keys.tenants().GiveBack(back, resizeEntry(inst)))
	done, err := s.conn.etcd.Txn(ctx).If(unchanged(record, inst.Revision)).Then(ops...).Commit()
	if err != nil {
		return inst, s.conn.wrap(err, "write the record of instance %s", inst.ID)
	}
	if !done.Succeeded {
		return inst, croft.Errorf(croft.Conflict, "instance %s was changed by another request", inst.ID)
	}
	next.Revision = done.Header.Revision
	return next, nil
}
