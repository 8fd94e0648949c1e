package etcdstore

import (
	"context"
	"maps"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
)

// feed turns events of etcd into changes of instances. It knows everything that a change shows from the watch alone.
// The values that its maps point to never change.
type feed struct {
	conn     *conn
	observed map[string]*croft.Observation // by host/instance
	shown    map[croft.HostID]*croft.Host  // what instances show of their hosts
	on       map[croft.HostID]map[croft.InstanceID]bool
	changes  []croft.Change // of the revision that is being processed

	overview
}

// Follow implements cloud.Instances. After a broken watch it starts again.
func (s *Instances) Follow(ctx context.Context, begun func(revision int64), changed func([]croft.Change)) error {
	return s.conn.keepWatching(ctx, func(ctx context.Context) { s.followFeed(ctx, begun, changed) })
}

// followFeed lists the instances once and then watches, until the watch breaks for any reason.
func (s *Instances) followFeed(ctx context.Context, begun func(int64), changed func([]croft.Change)) {
	k := s.conn.keys
	got, err := s.conn.etcd.Txn(ctx).Then(clientv3.OpGet(k.hosts(), clientv3.WithPrefix()),
		clientv3.OpGet(k.allAlive(), clientv3.WithPrefix()), clientv3.OpGet(k.allObserved(), clientv3.WithPrefix()),
		clientv3.OpGet(k.instances(), clientv3.WithPrefix()), clientv3.OpGet(k.allDrained(), clientv3.WithPrefix()),
		clientv3.OpGet(k.allDead(), clientv3.WithPrefix())).Commit()
	if err != nil {
		return
	}
	f := &feed{conn: s.conn, observed: map[string]*croft.Observation{}, shown: map[croft.HostID]*croft.Host{},
		on: map[croft.HostID]map[croft.InstanceID]bool{}, overview: newOverview()}
	for _, r := range got.Responses {
		for _, kv := range r.GetResponseRange().Kvs {
			f.note(&clientv3.Event{Type: clientv3.EventTypePut, Kv: kv})
		}
		f.changes = nil
	}
	f.revision = got.Header.Revision
	// Only a single watch has the same order of events at every server, and delivers all events of a revision in one
	// response. So this watch also covers the keys between the three kinds of keys.
	from, to := k.allAlive(), clientv3.GetPrefixRangeEnd(k.allObserved())
	watch := s.conn.etcd.Watch(ctx, from, clientv3.WithRange(to), clientv3.WithRev(got.Header.Revision+1))
	f.ask = func(asker context.Context) error {
		ctx, cancel := context.WithCancel(ctx) // the watch is found by the metadata in its context
		defer cancel()
		defer context.AfterFunc(asker, cancel)()
		return s.conn.etcd.RequestProgress(ctx)
	}
	s.conn.kept.Store(f)
	defer s.conn.kept.CompareAndSwap(f, nil)
	begun(got.Header.Revision)
	for answer := range watch {
		if answer.Err() != nil {
			return
		}
		for i, e := range answer.Events {
			f.mu.Lock()
			f.note(e)
			f.mu.Unlock()
			last := i+1 == len(answer.Events) || answer.Events[i+1].Kv.ModRevision != e.Kv.ModRevision
			if last && len(f.changes) > 0 {
				changed(f.changes)
				f.changes = nil
			}
			if last {
				f.advance(e.Kv.ModRevision)
			}
		}
		if answer.IsProgressNotify() {
			f.advance(answer.Header.Revision)
		}
	}
}

// note handles an event of any key. A value that cannot be decoded leaves the former one in place.
func (f *feed) note(e *clientv3.Event) {
	key, put, k := string(e.Kv.Key), e.Type == clientv3.EventTypePut, f.conn.keys
	switch {
	case strings.HasPrefix(key, k.instances()):
		f.noteRecord(e, put)
	case strings.HasPrefix(key, k.allObserved()):
		at := strings.TrimPrefix(key, k.allObserved())
		if o := new(croft.Observation); !put {
			delete(f.observed, at)
		} else if f.conn.decode(e.Kv.Key, e.Kv.Value, o) == nil {
			f.observed[at] = o
		}
		id := croft.InstanceID(last(e.Kv.Key))
		if st := f.status(id); st != nil {
			f.set(id, f.join(st.Instance))
		}
		f.tell(e.Kv.ModRevision, id)
	case strings.HasPrefix(key, k.allAlive()):
		host := croft.HostID(strings.TrimPrefix(key, k.allAlive()))
		f.noteHost(e, put)
		for _, id := range f.renewHost(host) {
			f.tell(e.Kv.ModRevision, id)
		}
	case strings.HasPrefix(key, k.hosts()):
		f.noteHost(e, put)
		f.renewHost(croft.HostID(last(e.Kv.Key)))
	case strings.HasPrefix(key, k.allDrained()), strings.HasPrefix(key, k.allDead()):
		f.noteHost(e, put)
	}
}

// noteRecord keeps the record of an instance, and adds a change.
func (f *feed) noteRecord(e *clientv3.Event, put bool) {
	id := croft.InstanceID(last(e.Kv.Key))
	was := f.status(id)
	if put {
		if inst, err := f.conn.decodeInstance(e.Kv); err == nil {
			inst.Spec.UserData, inst.Spec.ClusterKey = nil, ""
			if was != nil && was.Instance.Name != inst.Name {
				f.sorted = nil
			}
			f.move(id, was, inst.Host)
			f.set(id, f.join(inst))
		}
		f.tell(e.Kv.ModRevision, id)
		return
	}
	if was != nil {
		f.move(id, was, "")
		delete(f.statuses, id)
		f.sorted = nil
		inst := was.Instance
		f.changes = append(f.changes, croft.Change{Revision: e.Kv.ModRevision, Instance: id, Project: inst.Project,
			Gone: true, Status: croft.Status{Instance: croft.Instance{ID: id, Project: inst.Project, Name: inst.Name}}})
	}
}

// move notes the host of an instance; empty: it has none.
func (f *feed) move(id croft.InstanceID, was *croft.Status, to croft.HostID) {
	if was != nil && was.Instance.Host != to {
		if delete(f.on[was.Instance.Host], id); len(f.on[was.Instance.Host]) == 0 {
			delete(f.on, was.Instance.Host)
		}
	}
	if to == "" {
		return
	}
	if f.on[to] == nil {
		f.on[to] = map[croft.InstanceID]bool{}
	}
	f.on[to][id] = true
}

// join returns the status of an instance.
func (f *feed) join(inst croft.Instance) *croft.Status {
	return &croft.Status{Instance: inst, Observation: f.observed[place(inst.Host, inst.ID)], Host: f.shownOf(inst.Host)}
}

// shownOf returns what the instances of a host show of it; nil: it has no record.
func (f *feed) shownOf(id croft.HostID) *croft.Host {
	h, known := f.hosts[id]
	if known && f.shown[id] == nil {
		_, alive := f.lives[id]
		f.shown[id] = &croft.Host{ID: h.ID, Name: h.Name, Location: h.Location, VirtType: h.VirtType,
			NoSetUp: h.NoSetUp, Alive: alive}
	}
	return f.shown[id]
}

// renewHost joins the instances of a host again, and returns them in the order of their IDs.
func (f *feed) renewHost(host croft.HostID) []croft.InstanceID {
	delete(f.shown, host)
	all := slices.Sorted(maps.Keys(f.on[host]))
	for _, id := range all {
		f.set(id, f.join(f.status(id).Instance))
	}
	return all
}

// tell adds a change of an instance, if it has a record.
func (f *feed) tell(revision int64, id croft.InstanceID) {
	if st := f.status(id); st != nil {
		f.changes = append(f.changes, croft.Change{Revision: revision, Instance: id, Project: st.Instance.Project,
			Status: *st})
	}
}
