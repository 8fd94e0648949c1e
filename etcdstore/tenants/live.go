package tenants

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/internal/kv"
	"croft/tenant"
	"croft/tenant/access"
)

// Live is the tree of projects in memory, which follows the stored one. It implements access.Tree, access.Refresher,
// access.Behind and access.Members. Its answers may lag behind the latest write by the delay of an etcd watch, unless
// Refresh was called for the project, or CatchUp.
type Live struct {
	projects *Projects
	tail     *kv.Tail

	mu      sync.RWMutex
	read    bool
	tree    tenant.Tree
	changed chan struct{} // closed at the next change
}

// NewLive returns a tree that is empty until it runs.
func (s *Projects) NewLive() *Live {
	return &Live{projects: s, tail: s.newTail(), changed: make(chan struct{})}
}

// Run follows the projects until ctx ends.
func (l *Live) Run(ctx context.Context) error {
	return l.projects.follow(ctx, l.tail, func(now tenant.Tree) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.read, l.tree = true, now
		close(l.changed)
		l.changed = make(chan struct{})
	})
}

func (l *Live) now() (_ tenant.Tree, read bool, changed <-chan struct{}) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.tree, l.read, l.changed
}

// refreshTime is the time limit of Refresh: a watch that has not reported a write by then is disconnected.
const refreshTime = 5 * time.Second

// Refresh implements access.Refresher. It reads one key, and waits for the watch if the key is newer.
func (l *Live) Refresh(ctx context.Context, p croft.Project) error {
	if err := p.Check(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, refreshTime)
	defer cancel()
	for {
		tree, _, changed := l.now()
		got, err := l.projects.conn.Etcd.Get(ctx, l.projects.keys().project(p), clientv3.WithKeysOnly())
		if err != nil {
			return l.projects.conn.Wrap(err, "read the record of project %s", p)
		}
		var stored int64
		if len(got.Kvs) > 0 {
			stored = got.Kvs[0].ModRevision
		}
		if known := tree.Generation(p); known == stored || stored != 0 && known > stored {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return croft.Errorf(croft.Unavailable, "read the latest change of project %s: this server's tree of "+
				"projects is older than etcd's: try again", p)
		}
	}
}

// CatchUp implements access.Behind.
func (l *Live) CatchUp(ctx context.Context) error { return l.tail.CatchUp(ctx) }

// Below implements access.Tree. Until the tree has been read, projects have no descendants.
func (l *Live) Below(p croft.Project) []croft.Project {
	tree, _, _ := l.now()
	return tree.Below(p)
}

// ID implements access.Tree.
func (l *Live) ID(p croft.Project) croft.ProjectID {
	tree, _, _ := l.now()
	return tree.ID(p)
}

// ProjectsOf implements access.Members.
func (l *Live) ProjectsOf(user string) ([]croft.Project, error) {
	tree, read, _ := l.now()
	if !read {
		return nil, croft.Errorf(croft.Unavailable, "the projects of this cloud are still being read: try again")
	}
	return tree.ProjectsOf(user), nil
}

// RolesOf implements access.Members.
func (l *Live) RolesOf(user string, p croft.Project) []access.Role {
	tree, _, _ := l.now()
	return tree.RolesOf(user, p)
}
