package etcdstore

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
)

// overview is a copy of what lists show of all instances and hosts, which a feed keeps.
type overview struct {
	ask func(context.Context) error // asks for the revision that the watch has reached

	mu       sync.Mutex
	statuses map[croft.InstanceID]*latest
	sorted   []*latest     // by name; nil: to be sorted again
	revision int64         // no change up to it is missing
	moved    chan struct{} // closed when the revision grows

	// The hosts, by the keys that they are made of. Their values never change.
	hosts   map[croft.HostID]croft.Host
	lives   map[croft.HostID][]byte
	drained map[croft.HostID]bool
	deaths  map[croft.HostID]croft.Death
	broken  map[string]bool // keys of values that cannot be decoded
}

// latest holds the latest status of an instance, without its order and user-data. A status itself never changes.
type latest struct{ status *croft.Status }

// set keeps the status of an instance.
func (o *overview) set(id croft.InstanceID, st *croft.Status) {
	if l := o.statuses[id]; l != nil {
		l.status = st
		return
	}
	o.statuses[id] = &latest{st}
	o.sorted = nil
}

// status returns the status of an instance; nil: it does not exist.
func (o *overview) status(id croft.InstanceID) *croft.Status {
	if l := o.statuses[id]; l != nil {
		return l.status
	}
	return nil
}

func newOverview() overview {
	return overview{statuses: map[croft.InstanceID]*latest{}, moved: make(chan struct{}),
		hosts: map[croft.HostID]croft.Host{}, lives: map[croft.HostID][]byte{}, drained: map[croft.HostID]bool{},
		deaths: map[croft.HostID]croft.Death{}, broken: map[string]bool{}}
}

// noteHost handles an event of a key that a host is made of.
func (f *feed) noteHost(e *clientv3.Event, put bool) {
	key, id := string(e.Kv.Key), croft.HostID(last(e.Kv.Key))
	delete(f.broken, key)
	if !put {
		switch k := f.conn.keys; {
		case strings.HasPrefix(key, k.allAlive()):
			delete(f.lives, id)
		case strings.HasPrefix(key, k.hosts()):
			delete(f.hosts, id)
		case strings.HasPrefix(key, k.allDrained()):
			delete(f.drained, id)
		default:
			delete(f.deaths, id)
		}
		return
	}
	v, err := f.conn.decodeAny(e.Kv)
	if err != nil {
		f.broken[key] = true
		return
	}
	switch v := v.(type) {
	case croft.Host:
		v.Problems = slices.Clip(v.Problems) // readers append to it
		f.hosts[id] = v
	case croft.Death:
		f.deaths[id] = v
	case string:
		if strings.HasPrefix(key, f.conn.keys.allAlive()) {
			f.lives[id] = []byte(v)
		} else {
			f.drained[id] = true
		}
	}
}

// joinHosts returns the hosts, with when they were seen, and with the agents that have their UUIDs too. False: a value
// cannot be decoded, and the reader has to find that out.
func (o *overview) joinHosts(j *joiner) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.broken) > 0 {
		return false
	}
	j.hosts, j.lives, j.drained, j.deaths = maps.Clone(o.hosts), maps.Clone(o.lives), o.drained, o.deaths
	for id := range o.lives {
		j.alive[id] = true
	}
	_, err := j.join()
	return err == nil
}

// copied returns all hosts from the copy of Follow once that has every write before the call. It reads only what the
// copy lacks: when the hosts were seen, which is written each minute, and twins. Nil: there is no copy, or it is late.
func (s *Registry) copied(ctx context.Context) map[croft.HostID]croft.Host {
	f := s.conn.kept.Load()
	if f == nil {
		return nil
	}
	k, j := s.conn.keys, s.conn.newJoiner()
	got, err := s.conn.etcd.Txn(ctx).Then(clientv3.OpGet(k.allSeen(), clientv3.WithPrefix()),
		clientv3.OpGet(k.allTwins(), clientv3.WithPrefix())).Commit()
	if err != nil {
		return nil // reading all of it will say why
	}
	for _, r := range got.Responses {
		j.addAll(r.GetResponseRange().Kvs)
	}
	if !f.reaches(ctx, got.Header.Revision) || !f.joinHosts(j) {
		return nil
	}
	return j.hosts
}

// advance notes that all changes up to a revision are in the copy.
func (o *overview) advance(revision int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if revision > o.revision {
		o.revision = revision
		close(o.moved)
		o.moved = make(chan struct{})
	}
}

// Times for a copy to catch up.
const (
	askAgain = 20 * time.Millisecond // a member of etcd may be behind another one
	mostLate = time.Second
)

// reaches waits until all changes up to a revision are in the copy. False: it takes too long.
func (o *overview) reaches(ctx context.Context, revision int64) bool {
	ctx, cancel := context.WithTimeout(ctx, mostLate)
	defer cancel()
	for {
		o.mu.Lock()
		reached, moved := o.revision >= revision, o.moved
		o.mu.Unlock()
		if reached {
			return true
		}
		if o.ask(ctx) != nil {
			return false
		}
		select {
		case <-moved:
		case <-time.After(askAgain):
		case <-ctx.Done():
			return false
		}
	}
}

// byName returns all statuses.
func (o *overview) byName() []*croft.Status {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sorted == nil {
		o.sorted = slices.SortedFunc(maps.Values(o.statuses), func(a, b *latest) int {
			return byName(a.status, b.status)
		})
	}
	all := make([]*croft.Status, len(o.sorted))
	for i, l := range o.sorted {
		all[i] = l.status
	}
	return all
}

func byName(a, b *croft.Status) int {
	return cmp.Or(cmp.Compare(a.Instance.Name, b.Instance.Name), cmp.Compare(a.Instance.ID, b.Instance.ID))
}

// Overview implements cloud.Instances and hosts.Instances. While Follow runs, it reads nothing but a revision: it
// waits until the copy of Follow has that revision.
func (s *Instances) Overview(ctx context.Context, project croft.Project) ([]*croft.Status, error) {
	if f := s.conn.kept.Load(); f != nil {
		now, err := s.conn.etcd.Get(ctx, homeKey, clientv3.WithCountOnly())
		if err != nil {
			return nil, s.conn.wrap(err, "list instances")
		}
		if f.reaches(ctx, now.Header.Revision) {
			all := f.byName()
			if project != "" {
				all = slices.DeleteFunc(all, func(st *croft.Status) bool { return st.Instance.Project != project })
			}
			return all, nil
		}
	}
	listed, err := s.List(ctx, project)
	all := make([]*croft.Status, len(listed))
	for i := range listed {
		all[i] = &listed[i]
	}
	slices.SortFunc(all, byName)
	return all, err
}

// Some implements cloud.Instances and hosts.Instances. It reads at one moment.
func (s *Instances) Some(ctx context.Context, ids []croft.InstanceID) ([]croft.Status, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	now, err := s.conn.etcd.Get(ctx, homeKey, clientv3.WithCountOnly())
	if err != nil {
		return nil, s.conn.wrap(err, "list instances")
	}
	found, err := s.some(ctx, ids, now.Header.Revision)
	at := map[croft.InstanceID]int{}
	for i, id := range ids {
		at[id] = i
	}
	slices.SortFunc(found, func(a, b croft.Status) int { return cmp.Compare(at[a.Instance.ID], at[b.Instance.ID]) })
	return found, err
}
