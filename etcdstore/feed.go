package etcdstore

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
)

// whereabouts are the fields of an instance that a change of its observation or host does not contain.
type whereabouts struct {
	project croft.Project
	host    croft.HostID
}

// feed turns events of etcd into changes of instances.
type feed struct {
	keys    keys
	known   map[croft.InstanceID]whereabouts
	changes []croft.Change // of the revision that is being processed
}

// Follow implements cloud.Feed. After a broken watch it starts again.
func (s *Instances) Follow(ctx context.Context, begun func(revision int64), changed func([]croft.Change)) error {
	for {
		s.followFeed(ctx, begun, changed)
		if ctx.Err() == nil {
			s.conn.metrics.broken.Inc()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(watchRetry + rand.N(watchRetry)):
		}
	}
}

// followFeed lists the instances once and then watches, until the watch breaks for any reason.
func (s *Instances) followFeed(ctx context.Context, begun func(int64), changed func([]croft.Change)) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel() // also ends the watch at the server
	defer s.conn.watching()()
	k := s.conn.keys
	got, err := s.conn.etcd.Get(ctx, k.instances(), clientv3.WithPrefix())
	if err != nil {
		return
	}
	f := feed{keys: k, known: map[croft.InstanceID]whereabouts{}}
	for _, kv := range got.Kvs {
		if inst, err := s.conn.decodeInstance(kv); err == nil {
			f.known[inst.ID] = whereabouts{inst.Project, inst.Host}
		}
	}
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
			s.note(&f, e)
			last := i+1 == len(answer.Events) || answer.Events[i+1].Kv.ModRevision != e.Kv.ModRevision
			if last && len(f.changes) > 0 {
				changed(f.changes)
				f.changes = nil
			}
		}
	}
}

// note handles an event of any key.
func (s *Instances) note(f *feed, e *clientv3.Event) {
	switch key := string(e.Kv.Key); {
	case strings.HasPrefix(key, f.keys.instances()):
		s.noteRecord(f, e)
	case strings.HasPrefix(key, f.keys.allObserved()):
		f.tell(e.Kv.ModRevision, croft.InstanceID(last(e.Kv.Key)))
	case strings.HasPrefix(key, f.keys.allAlive()):
		f.noteHost(e)
	}
}

// noteRecord records the project and host of an instance, and adds a change.
func (s *Instances) noteRecord(f *feed, e *clientv3.Event) {
	id := croft.InstanceID(last(e.Kv.Key))
	if e.Type == clientv3.EventTypePut {
		if inst, err := s.conn.decodeInstance(e.Kv); err == nil {
			f.known[id] = whereabouts{inst.Project, inst.Host}
		}
		f.tell(e.Kv.ModRevision, id)
		return
	}
	if at, ok := f.known[id]; ok {
		delete(f.known, id)
		f.changes = append(f.changes,
			croft.Change{Revision: e.Kv.ModRevision, Instance: id, Project: at.project, Gone: true})
	}
}

// noteHost adds a change of every instance of a host that became alive or silent, in the order of their IDs.
func (f *feed) noteHost(e *clientv3.Event) {
	host := croft.HostID(strings.TrimPrefix(string(e.Kv.Key), f.keys.allAlive()))
	for _, id := range slices.Sorted(maps.Keys(f.known)) {
		if f.known[id].host == host {
			f.tell(e.Kv.ModRevision, id)
		}
	}
}

// tell adds a change of an instance, if it has a record.
func (f *feed) tell(revision int64, id croft.InstanceID) {
	if at, ok := f.known[id]; ok {
		f.changes = append(f.changes, croft.Change{Revision: revision, Instance: id, Project: at.project})
	}
}
