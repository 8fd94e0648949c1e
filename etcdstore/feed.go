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
	conn      *conn
	instances map[croft.InstanceID]*croft.Instance // without user-data
	observed  map[string]*croft.Observation        // by host/instance
	hosts     map[croft.HostID]*croft.Host
	alive     map[croft.HostID]bool
	changes   []croft.Change // of the revision that is being processed
}

// Follow implements cloud.Instances. After a broken watch it starts again.
func (s *Instances) Follow(ctx context.Context, begun func(revision int64), changed func([]croft.Change)) error {
	return s.conn.keepWatching(ctx, func(ctx context.Context) { s.followFeed(ctx, begun, changed) })
}

// followFeed lists the instances once and then watches, until the watch breaks for any reason.
func (s *Instances) followFeed(ctx context.Context, begun func(int64), changed func([]croft.Change)) {
	k := s.conn.keys
	got, err := s.conn.etcd.Txn(ctx).Then(clientv3.OpGet(k.hosts(), clientv3.WithPrefix()),
		clientv3.OpGet(k.allAlive(), clientv3.WithPrefix()), clientv3.OpGet(k.instances(), clientv3.WithPrefix()),
		clientv3.OpGet(k.allObserved(), clientv3.WithPrefix())).Commit()
	if err != nil {
		return
	}
	f := feed{conn: s.conn, instances: map[croft.InstanceID]*croft.Instance{},
		observed: map[string]*croft.Observation{}, hosts: map[croft.HostID]*croft.Host{},
		alive: map[croft.HostID]bool{}}
	for _, r := range got.Responses {
		for _, kv := range r.GetResponseRange().Kvs {
			f.note(&clientv3.Event{Type: clientv3.EventTypePut, Kv: kv})
		}
	}
	f.changes = nil
	// Only a single watch has the same order of events at every server, and delivers all events of a revision in one
	// response. So this watch also covers the keys between the three kinds of keys.
	from, to := k.allAlive(), clientv3.GetPrefixRangeEnd(k.allObserved())
	watch := s.conn.etcd.Watch(ctx, from, clientv3.WithRange(to), clientv3.WithRev(got.Header.Revision+1))
	begun(got.Header.Revision)
	for answer := range watch {
		if answer.Err() != nil {
			return
		}
		for i, e := range answer.Events {
			f.note(e)
			last := i+1 == len(answer.Events) || answer.Events[i+1].Kv.ModRevision != e.Kv.ModRevision
			if last && len(f.changes) > 0 {
				changed(f.changes)
				f.changes = nil
			}
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
		f.tell(e.Kv.ModRevision, croft.InstanceID(last(e.Kv.Key)))
	case strings.HasPrefix(key, k.allAlive()):
		host := croft.HostID(strings.TrimPrefix(key, k.allAlive()))
		if f.alive[host] = put; !put {
			delete(f.alive, host)
		}
		f.noteHost(host, e.Kv.ModRevision)
	case strings.HasPrefix(key, k.hosts()):
		host := croft.HostID(last(e.Kv.Key))
		if h := new(storedHost); !put {
			delete(f.hosts, host)
		} else if f.conn.decode(e.Kv.Key, e.Kv.Value, h) == nil {
			f.hosts[host] = &croft.Host{ID: h.ID, Name: h.Name, Location: h.Location, VirtType: h.VirtType,
				NoSetUp: h.NoSetUp}
		}
	}
}

// noteRecord keeps the record of an instance, and adds a change.
func (f *feed) noteRecord(e *clientv3.Event, put bool) {
	id := croft.InstanceID(last(e.Kv.Key))
	if put {
		if inst, err := f.conn.decodeInstance(e.Kv); err == nil {
			inst.Spec.UserData, inst.Spec.ClusterKey = nil, ""
			f.instances[id] = &inst
		}
		f.tell(e.Kv.ModRevision, id)
		return
	}
	if was, ok := f.instances[id]; ok {
		delete(f.instances, id)
		f.changes = append(f.changes, croft.Change{Revision: e.Kv.ModRevision, Instance: id, Project: was.Project,
			Gone: true, Status: croft.Status{Instance: croft.Instance{ID: id, Project: was.Project, Name: was.Name}}})
	}
}

// noteHost adds a change of every instance of a host that became alive or silent, in the order of their IDs.
func (f *feed) noteHost(host croft.HostID, revision int64) {
	for _, id := range slices.Sorted(maps.Keys(f.instances)) {
		if f.instances[id].Host == host {
			f.tell(revision, id)
		}
	}
}

// tell adds a change of an instance, if it has a record.
func (f *feed) tell(revision int64, id croft.InstanceID) {
	inst, ok := f.instances[id]
	if !ok {
		return
	}
	st := croft.Status{Instance: *inst, Observation: f.observed[place(inst.Host, id)]}
	if h := f.hosts[inst.Host]; h != nil {
		now := *h
		now.Alive = f.alive[inst.Host]
		st.Host = &now
	}
	f.changes = append(f.changes, croft.Change{Revision: revision, Instance: id, Project: inst.Project, Status: st})
}
