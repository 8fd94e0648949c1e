package etcdstore

import (
	"context"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
)

// An instance's user-data may be long. It is stored under its own key, for as long as the instance has a record, and
// not in record and order. So it is written once, and not read by readers of many records. Programs of schema 1.1 do
// not know this key: for hosts that they serve, record and order contain the user-data, as they did in that version.

// userData writes and reads user-data.
type userData struct{ conn *conn }

// fillUserData adds the value of the user-data key to the spec of a record or an order.
func fillUserData(spec *croft.Spec, kvs []*mvccpb.KeyValue) {
	if len(kvs) > 0 && len(spec.UserData) == 0 {
		spec.UserData = kvs[0].Value
	}
}

// putUserData stores an instance's user-data. It replaces user-data that a program of 1.1 left of an older instance
// with the same UUID.
func (s userData) putUserData(inst croft.Instance) clientv3.Op {
	if len(inst.Spec.UserData) == 0 {
		return clientv3.OpDelete(s.conn.keys.userData(inst.ID))
	}
	return clientv3.OpPut(s.conn.keys.userData(inst.ID), string(inst.Spec.UserData))
}

// keepUserData stores an instance's user-data at the key where the agent of its host reads it. It returns record and
// order in the form to store, and further operations. The instance may have been read without its user-data.
func (s userData) keepUserData(ctx context.Context, inst croft.Instance, o croft.Order) (croft.Instance, croft.Order,
	[]clientv3.Op, error) {
	if o.Want.Withdrawn() { // no longer needed; the key is removed with the record
		inst.Spec.UserData = nil
		return inst, o, nil, nil
	}
	key := s.conn.keys.userData(inst.ID)
	got, err := s.conn.etcd.Txn(ctx).Then(clientv3.OpGet(s.conn.keys.alive(o.Host)),
		clientv3.OpGet(key, clientv3.WithCountOnly())).Commit()
	if err != nil {
		return inst, o, nil, s.conn.wrap(err, "look for the user-data of instance %s", inst.ID)
	}
	life, apart := got.Responses[0].GetResponseRange().Kvs, got.Responses[1].GetResponseRange().Count > 0
	if len(life) > 0 && !knows(life[0].Value, userDataMinor) {
		if err := s.readUserData(ctx, &inst); err != nil {
			return inst, o, nil, err
		}
		o.Spec.UserData = inst.Spec.UserData
		return inst, o, []clientv3.Op{clientv3.OpDelete(key)}, nil
	}
	var ops []clientv3.Op
	if !apart && len(inst.Spec.UserData) > 0 {
		ops = append(ops, s.putUserData(inst))
	}
	inst.Spec.UserData, o.Spec.UserData = nil, nil
	return inst, o, ops, nil
}

// readUserData adds the user-data to a record that was read without it.
func (s userData) readUserData(ctx context.Context, inst *croft.Instance) error {
	got, err := s.conn.etcd.Get(ctx, s.conn.keys.userData(inst.ID))
	if err != nil {
		return s.conn.wrap(err, "read the user-data of instance %s", inst.ID)
	}
	fillUserData(&inst.Spec, got.Kvs)
	return nil
}

// withoutUserData returns a record in its stored form when its user-data is stored separately.
func withoutUserData(inst croft.Instance) croft.Instance {
	inst.Spec.UserData = nil
	return inst
}
