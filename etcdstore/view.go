package etcdstore

import (
	"context"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
)

// Find implements schedule.View.
func (s *Store) Find(ctx context.Context, project croft.Project, idOrName string) (croft.Status, error) {
	id, err := croft.ParseInstanceID(idOrName)
	if err != nil {
		got, err := s.etcd.Get(ctx, s.keys.name(project, idOrName))
		if err != nil {
			return croft.Status{}, s.wrap(err, "look up the name %s", idOrName)
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
func (s *Store) status(ctx context.Context, id croft.InstanceID) (*croft.Status, int64, error) {
	got, err := s.etcd.Get(ctx, s.keys.instance(id))
	if err != nil {
		return nil, 0, s.wrap(err, "read the record of instance %s", id)
	}
	if len(got.Kvs) == 0 {
		return nil, got.Header.Revision, nil
	}
	inst, err := s.decodeInstance(got.Kvs[0])
	if err == nil && inst.Host == "" {
		err = userData{s.conn}.readUserData(ctx, &inst)
	}
	if err != nil || inst.Host == "" {
		return &croft.Status{Instance: inst}, got.Header.Revision, err
	}
	all, err := s.etcd.Txn(ctx).Then(
		clientv3.OpGet(s.keys.instance(id)),
		clientv3.OpGet(s.keys.order(inst.Host, id)),
		clientv3.OpGet(s.keys.observed(inst.Host, id)),
		clientv3.OpGet(s.keys.host(inst.Host)),
		clientv3.OpGet(s.keys.alive(inst.Host)),
		clientv3.OpGet(s.keys.drained(inst.Host)),
		clientv3.OpGet(s.keys.seen(inst.Host)),
		clientv3.OpGet(s.keys.userData(id)),
	).Commit()
	if err != nil {
		return nil, 0, s.wrap(err, "read instance %s", id)
	}
	b := s.newJoiner()
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
func (s *Store) List(ctx context.Context, project croft.Project) ([]croft.Status, error) {
	var ops []clientv3.Op
	for _, prefix := range []string{s.keys.instances(), s.keys.allOrders(), s.keys.allObserved(), s.keys.hosts(),
		s.keys.allAlive(), s.keys.allDrained(), s.keys.allSeen()} {
		ops = append(ops, clientv3.OpGet(prefix, clientv3.WithPrefix()))
	}
	got, err := s.etcd.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return nil, s.wrap(err, "list instances")
	}
	b := s.newJoiner()
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
func (s *Store) WatchInstance(ctx context.Context, id croft.InstanceID, changed func(*croft.Status) bool) error {
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
func (s *Store) await(ctx context.Context, st *croft.Status, from int64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	id := st.Instance.ID
	record := s.etcd.Watch(ctx, s.keys.instance(id), clientv3.WithRev(from))
	var observed clientv3.WatchChan // a nil channel never fires
	if st.Instance.Host != "" {
		observed = s.etcd.Watch(ctx, s.keys.observed(st.Instance.Host, id), clientv3.WithRev(from))
	}
	select {
	case <-record:
	case <-observed:
	}
	return ctx.Err()
}

// WatchInstances implements schedule.View.
func (s *Store) WatchInstances(ctx context.Context, changed func()) error {
	interesting := []string{s.keys.instances(), s.keys.allOrders(), s.keys.allObserved(), s.keys.hosts(),
		s.keys.allAlive(), s.keys.allDrained()}
	errs := make(chan error, len(interesting))
	for _, prefix := range interesting {
		s.work.Go(func() {
			errs <- s.follow(ctx, prefix, changed, func(*mvccpb.KeyValue, bool) { changed() })
		})
	}
	var err error
	for range interesting {
		err = <-errs
	}
	return err
}

// Hosts implements schedule.View.
func (s *conn) Hosts(ctx context.Context, ids ...croft.HostID) (map[croft.HostID]croft.Host, error) {
	var ops []clientv3.Op
	for _, id := range ids {
		ops = append(ops, clientv3.OpGet(s.keys.host(id)), clientv3.OpGet(s.keys.alive(id)),
			clientv3.OpGet(s.keys.drained(id)))
	}
	if len(ids) == 0 {
		for _, prefix := range []string{s.keys.hosts(), s.keys.allAlive(), s.keys.allDrained(), s.keys.allSeen(),
			s.keys.allTwins()} {
			ops = append(ops, clientv3.OpGet(prefix, clientv3.WithPrefix()))
		}
	}
	b := s.newJoiner()
	for part := range slices.Chunk(ops, maxTxnOps) {
		got, err := s.etcd.Txn(ctx).Then(part...).Commit()
		if err != nil {
			return nil, s.wrap(err, "read hosts")
		}
		for _, r := range got.Responses {
			b.addAll(r.GetResponseRange().Kvs)
		}
	}
	_, err := b.join()
	return b.hosts, err
}

// maxTxnOps is etcd's default limit on the operations of one transaction.
const maxTxnOps = 128
