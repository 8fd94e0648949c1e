package etcdstore

import (
	"context"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
)

// Find implements schedule.View.
func (s *Instances) Find(ctx context.Context, project croft.Project, idOrName string) (croft.Status, error) {
	id, err := croft.ParseInstanceID(idOrName)
	if err != nil {
		got, err := s.conn.etcd.Get(ctx, s.conn.keys.name(project, idOrName))
		if err != nil {
			return croft.Status{}, s.conn.wrap(err, "look up the name %s", idOrName)
		}
		if len(got.Kvs) == 0 {
			return croft.Status{}, croft.Errorf(croft.NotFound, "no instance is named %s; `schedule list` shows all",
				idOrName)
		}
		id = croft.InstanceID(got.Kvs[0].Value)
	}
	st, _, err := s.status(ctx, id)
	if err == nil && st == nil {
		err = croft.Errorf(croft.NotFound, "there is no instance %s; `schedule list` shows all", id)
	}
	if err != nil {
		return croft.Status{}, err
	}
	return *st, nil
}

// status reads all that is stored about one instance, nil if it has no record, and a revision to watch from.
func (s *Instances) status(ctx context.Context, id croft.InstanceID) (*croft.Status, int64, error) {
	k := s.conn.keys
	got, err := s.conn.etcd.Get(ctx, k.instance(id))
	if err != nil {
		return nil, 0, s.conn.wrap(err, "read the record of instance %s", id)
	}
	if len(got.Kvs) == 0 {
		return nil, got.Header.Revision, nil
	}
	inst, err := s.conn.decodeInstance(got.Kvs[0])
	if err == nil && inst.Host == "" {
		err = userData{s.conn}.readUserData(ctx, &inst)
	}
	if err != nil || inst.Host == "" {
		return &croft.Status{Instance: inst}, got.Header.Revision, err
	}
	all, err := s.conn.etcd.Txn(ctx).Then(
		clientv3.OpGet(k.instance(id)),
		clientv3.OpGet(k.order(inst.Host, id)),
		clientv3.OpGet(k.observed(inst.Host, id)),
		clientv3.OpGet(k.host(inst.Host)),
		clientv3.OpGet(k.alive(inst.Host)),
		clientv3.OpGet(k.drained(inst.Host)),
		clientv3.OpGet(k.seen(inst.Host)),
		clientv3.OpGet(k.userData(id)),
	).Commit()
	if err != nil {
		return nil, 0, s.conn.wrap(err, "read instance %s", id)
	}
	b := s.conn.newJoiner()
	for _, r := range all.Responses {
		b.addAll(r.GetResponseRange().Kvs)
	}
	found, err := b.join()
	if err != nil || len(found) == 0 {
		return nil, all.Header.Revision, err
	}
	st := &found[0]
	data := all.Responses[len(all.Responses)-1].GetResponseRange().Kvs
	fillUserData(&st.Instance.Spec, data)
	if st.Order != nil && st.Order.Want != croft.WantGone {
		fillUserData(&st.Order.Spec, data)
	}
	return st, all.Header.Revision, nil
}

// List implements schedule.View in one transaction, so that the result is consistent. It omits user-data that
// is stored apart.
func (s *Instances) List(ctx context.Context, project croft.Project) ([]croft.Status, error) {
	k := s.conn.keys
	var ops []clientv3.Op
	for _, prefix := range []string{k.instances(), k.allOrders(), k.allObserved(), k.hosts(),
		k.allAlive(), k.allDrained(), k.allSeen()} {
		ops = append(ops, clientv3.OpGet(prefix, clientv3.WithPrefix()))
	}
	got, err := s.conn.etcd.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return nil, s.conn.wrap(err, "list instances")
	}
	b := s.conn.newJoiner()
	for _, r := range got.Responses {
		b.addAll(r.GetResponseRange().Kvs)
	}
	found, err := b.join()
	if project != "" {
		found = slices.DeleteFunc(found, func(st croft.Status) bool { return st.Instance.Project != project })
	}
	return found, err
}

// WatchInstance implements schedule.View. Until the instance has a host only its record can change; then also
// its order and its observation.
func (s *Instances) WatchInstance(ctx context.Context, id croft.InstanceID, changed func(*croft.Status) bool) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for {
		st, revision, err := s.status(ctx, id)
		if err != nil {
			return err
		}
		if !changed(st) || st == nil {
			return nil
		}
		if err := s.await(ctx, st, revision+1); err != nil {
			return err
		}
	}
}

// await returns once a key that st was read from changed at revision from or later. A broken watch is treated
// as a change: the caller reads again.
func (s *Instances) await(ctx context.Context, st *croft.Status, from int64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	id := st.Instance.ID
	record := s.conn.etcd.Watch(ctx, s.conn.keys.instance(id), clientv3.WithRev(from))
	var observed clientv3.WatchChan // a nil channel never fires
	if st.Instance.Host != "" {
		observed = s.conn.etcd.Watch(ctx, s.conn.keys.observed(st.Instance.Host, id), clientv3.WithRev(from))
	}
	select {
	case <-record:
	case <-observed:
	}
	return ctx.Err()
}

// WatchInstances implements schedule.View.
func (s *Instances) WatchInstances(ctx context.Context, changed func()) error {
	k := s.conn.keys
	interesting := []string{k.instances(), k.allOrders(), k.allObserved(), k.hosts(), k.allAlive(), k.allDrained()}
	errs := make(chan error, len(interesting))
	for _, prefix := range interesting {
		s.conn.work.Go(func() {
			errs <- s.conn.follow(ctx, prefix, changed, func(*mvccpb.KeyValue, bool) { changed() })
		})
	}
	var err error
	for range interesting {
		err = <-errs
	}
	return err
}
