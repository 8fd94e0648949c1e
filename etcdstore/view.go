package etcdstore

import (
	"cmp"
	"context"
	"errors"
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
	st, err := s.FindByID(ctx, id)
	if err == nil && st.Instance.Project != project {
		return croft.Status{}, noInstance(id)
	}
	return st, err
}

// FindByID implements schedule.View.
func (s *Instances) FindByID(ctx context.Context, id croft.InstanceID) (croft.Status, error) {
	st, _, err := s.status(ctx, id)
	if err == nil && st == nil {
		err = noInstance(id)
	}
	if err != nil {
		return croft.Status{}, err
	}
	return *st, nil
}

func noInstance(id croft.InstanceID) error {
	return croft.Errorf(croft.NotFound, "there is no instance %s; `schedule list` shows all", id)
}

// status reads everything that is stored about one instance, and returns a revision to watch from; nil: the instance
// has no record.
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
		clientv3.OpGet(k.dead(inst.Host)),
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
	if st.Order != nil && !st.Order.Want.Withdrawn() {
		fillUserData(&st.Order.Spec, data)
	}
	return st, all.Header.Revision, nil
}

// mostNamed is the maximum number of instances that are read one by one: for more of them, reading all instances of the
// cloud costs less.
const mostNamed = 1000

// List implements schedule.View. The result is the state at one moment. It omits user-data that is stored separately.
func (s *Instances) List(ctx context.Context, project croft.Project) ([]croft.Status, error) {
	if project != "" {
		few, more, err := s.Page(ctx, project, "", mostNamed)
		if err != nil || !more {
			slices.SortFunc(few, byCreation)
			return few, err
		}
	}
	k := s.conn.keys
	var ops []clientv3.Op
	for _, prefix := range []string{k.instances(), k.allOrders(), k.allObserved(), k.hosts(),
		k.allAlive(), k.allDrained(), k.allDead(), k.allSeen()} {
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

// Page implements cloud.Instances. It reads only the page, at one moment, and omits user-data that is stored
// separately.
func (s *Instances) Page(ctx context.Context, project croft.Project, after string, limit int) (page []croft.Status,
	more bool, err error) {
	k := s.conn.keys
	named, err := s.conn.etcd.Get(ctx, k.name(project, after)+"\x00",
		clientv3.WithRange(clientv3.GetPrefixRangeEnd(k.name(project, ""))), clientv3.WithLimit(int64(limit)+1))
	if err != nil {
		return nil, false, s.conn.wrap(err, "list instances")
	}
	var ids []croft.InstanceID
	for _, kv := range named.Kvs[:min(limit, len(named.Kvs))] {
		ids = append(ids, croft.InstanceID(kv.Value))
	}
	page, err = s.some(ctx, ids, named.Header.Revision)
	slices.SortFunc(page, func(a, b croft.Status) int { return cmp.Compare(a.Instance.Name, b.Instance.Name) })
	return page, len(named.Kvs) > limit, err
}

// some reads those of the named instances that exist at a revision.
func (s *Instances) some(ctx context.Context, ids []croft.InstanceID, revision int64) ([]croft.Status, error) {
	k, j := s.conn.keys, s.conn.newJoiner()
	read := func(keys []string) error {
		var ops []clientv3.Op
		for _, key := range keys {
			ops = append(ops, clientv3.OpGet(key, clientv3.WithRev(revision)))
		}
		found, err := s.conn.shared().GetMany(ctx, "list instances", ops)
		for _, kvs := range found {
			j.addAll(kvs)
		}
		return err
	}
	var records []string
	for _, id := range ids {
		records = append(records, k.instance(id))
	}
	if err := read(records); err != nil {
		return nil, err
	}
	var rest []string
	hosts := map[croft.HostID]bool{"": true}
	for _, inst := range j.instances {
		if inst.Host != "" {
			rest = append(rest, k.order(inst.Host, inst.ID), k.observed(inst.Host, inst.ID))
		}
		if !hosts[inst.Host] {
			rest = append(rest, k.host(inst.Host), k.alive(inst.Host), k.drained(inst.Host), k.dead(inst.Host),
				k.seen(inst.Host))
		}
		hosts[inst.Host] = true
	}
	if err := read(rest); err != nil {
		return nil, err
	}
	return j.join()
}

// WatchInstance implements schedule.View. Until the instance has a host, only its record can change; afterwards also
// its order and its observation.
func (s *Instances) WatchInstance(ctx context.Context, id croft.InstanceID, changed func(*croft.Status) bool) error {
	if s.conn.waiters.takeAlone() {
		defer s.conn.waiters.leaveAlone()
		ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
		defer cancel()
		return s.watchWith(ctx, id, changed, s.await)
	}
	for {
		w, err := s.conn.waiters.join(ctx, id)
		if err != nil {
			return err
		}
		err = s.watchWith(ctx, id, changed, func(ctx context.Context, _ *croft.Status, from int64) error {
			return w.await(ctx, from)
		})
		if w.leave(); !errors.Is(err, errWatchBroke) {
			return err
		}
	}
}

// watchWith reads an instance and waits for its next change, until changed returns false.
func (s *Instances) watchWith(ctx context.Context, id croft.InstanceID, changed func(*croft.Status) bool,
	await func(ctx context.Context, st *croft.Status, from int64) error) error {
	for {
		st, revision, err := s.status(ctx, id)
		if err != nil {
			return err
		}
		if !changed(st) || st == nil {
			return nil
		}
		if err := await(ctx, st, revision+1); err != nil {
			return err
		}
	}
}

// await returns once a key from which st was read changed at revision from or later. A broken watch is treated as a
// change: the caller reads again.
func (s *Instances) await(ctx context.Context, st *croft.Status, from int64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	id := st.Instance.ID
	record := s.conn.etcd.Watch(ctx, s.conn.keys.instance(id), clientv3.WithRev(from))
	var observed clientv3.WatchChan // a nil channel never receives
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
