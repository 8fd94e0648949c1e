package etcdstore

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
)

// whereabouts is what a change of an observation or a host does not say about the instances concerned.
type whereabouts struct {
	project croft.Project
	host    croft.HostID
}

// feed turns events of etcd into changes of instances.
type feed struct {
	keys    keys
	known   map[croft.InstanceID]whereabouts
	changed func(croft.Change)
}

// Follow implements cloud.Feed. After a lost watch it begins again.
func (s *Instances) Follow(ctx context.Context, begun func(revision int64), changed func(croft.Change)) error {
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

// followFeed lists the instances once and then watches, until a watch breaks for any reason.
func (s *Instances) followFeed(ctx context.Context, begun func(int64), changed func(croft.Change)) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel() // also ends the watches at the server
	defer s.conn.watching()()
	k := s.conn.keys
	got, err := s.conn.etcd.Get(ctx, k.instances(), clientv3.WithPrefix())
	if err != nil {
		return
	}
	f := feed{k, map[croft.InstanceID]whereabouts{}, changed}
	for _, kv := range got.Kvs {
		if inst, err := s.conn.decodeInstance(kv); err == nil {
			f.known[inst.ID] = whereabouts{inst.Project, inst.Host}
		}
	}
	watch := func(prefix string) clientv3.WatchChan {
		return s.conn.etcd.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(got.Header.Revision+1))
	}
	records, observed, alive := watch(k.instances()), watch(k.allObserved()), watch(k.allAlive())
	begun(got.Header.Revision)
	for {
		var answer clientv3.WatchResponse
		var open bool
		select {
		case answer, open = <-records:
			for _, e := range answer.Events {
				s.noteRecord(&f, e)
			}
		case answer, open = <-observed:
			for _, e := range answer.Events {
				f.tell(e.Kv.ModRevision, croft.InstanceID(last(e.Kv.Key)))
			}
		case answer, open = <-alive:
			for _, e := range answer.Events {
				f.noteHost(e)
			}
		}
		if !open || answer.Err() != nil {
			return
		}
	}
}

// noteRecord remembers where an instance is, and tells that it changed.
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
		f.changed(croft.Change{Revision: e.Kv.ModRevision, Instance: id, Project: at.project, Gone: true})
	}
}

// noteHost tells of every instance of a host that came to life or fell silent.
func (f *feed) noteHost(e *clientv3.Event) {
	host := croft.HostID(strings.TrimPrefix(string(e.Kv.Key), f.keys.allAlive()))
	for id, at := range f.known {
		if at.host == host {
			f.tell(e.Kv.ModRevision, id)
		}
	}
}

// tell passes on a change of an instance that has a record.
func (f *feed) tell(revision int64, id croft.InstanceID) {
	if at, ok := f.known[id]; ok {
		f.changed(croft.Change{Revision: revision, Instance: id, Project: at.project})
	}
}
