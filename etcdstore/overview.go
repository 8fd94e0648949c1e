package etcdstore

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
)

// overview is a copy of what lists show of all instances, which a feed keeps.
type overview struct {
	ask func(context.Context) error // asks for the revision that the watch has reached

	mu       sync.Mutex
	statuses map[croft.InstanceID]*croft.Status // without orders and user-data; a status never changes
	sorted   []croft.InstanceID                 // by name; nil: to be sorted again
	revision int64                              // no change up to it is missing
	moved    chan struct{}                      // closed when the revision grows
}

func newOverview() overview {
	return overview{statuses: map[croft.InstanceID]*croft.Status{}, moved: make(chan struct{})}
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
	all := make([]*croft.Status, 0, len(o.statuses))
	if o.sorted != nil {
		for _, id := range o.sorted {
			all = append(all, o.statuses[id])
		}
		return all
	}
	for _, st := range o.statuses {
		all = append(all, st)
	}
	slices.SortFunc(all, byName)
	o.sorted = make([]croft.InstanceID, len(all))
	for i, st := range all {
		o.sorted[i] = st.Instance.ID
	}
	return all
}

func byName(a, b *croft.Status) int {
	return cmp.Or(cmp.Compare(a.Instance.Name, b.Instance.Name), cmp.Compare(a.Instance.ID, b.Instance.ID))
}

// Overview implements cloud.Instances and hosts.Instances. While Follow runs, it reads nothing but a revision: it
// waits until the copy of Follow has that revision.
func (s *Instances) Overview(ctx context.Context, project croft.Project) ([]*croft.Status, error) {
	if f := s.kept.Load(); f != nil {
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
