package etcdstore

import (
	"context"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/access"
	"croft/tenant"
)

// Projects stores projects and counts what they use.
type Projects struct{ conn *conn }

var _ tenant.Projects = (*Projects)(nil)

// List implements tenant.Projects.
func (s *Projects) List(ctx context.Context, scope access.Scope) ([]tenant.Project, error) {
	all, err := s.conn.readProjects(ctx, 0)
	return slices.DeleteFunc(all, func(p tenant.Project) bool { return !scope.Sees(p.Name) }), err
}

func (s *conn) readProjects(ctx context.Context, revision int64) (all []tenant.Project, err error) {
	err = s.readRange(ctx, "read the projects", s.keys.quota().projects(), revision, func(kv *mvccpb.KeyValue) error {
		p, err := s.decodeProject(kv)
		all = append(all, p.Project)
		return err
	})
	return all, err
}

func (s *conn) decodeProject(kv *mvccpb.KeyValue) (p storedProject, err error) {
	err = s.decode(kv.Key, kv.Value, &p)
	p.Generation = kv.ModRevision
	return p, err
}

// Create implements tenant.Projects. A project below another one must be empty: what it has already is not counted for
// those above it.
func (s *Projects) Create(ctx context.Context, p tenant.Project) (tenant.Project, error) {
	if err := p.Check(); err != nil {
		return p, err
	}
	k, stored := s.conn.keys.quota(), storedProject{Project: p}
	compares := []clientv3.Cmp{absent(k.project(p.Name))}
	var ops []clientv3.Op
	if p.Parent != "" {
		above, err := s.conn.readChain(ctx, p.Parent)
		if err != nil {
			return p, err
		}
		if above.links[0].recorded == 0 {
			return p, croft.Errorf(croft.NotFound, "create project %s: there is no project %s to put it below", p.Name,
				p.Parent)
		}
		stored.Above = append([]croft.Project{p.Parent}, above.links[0].record.Above...)
		if len(stored.Above) >= tenant.MaxDepth {
			return p, croft.Errorf(croft.Invalid, "create project %s: there are %d projects above it, at most %d may be",
				p.Name, len(stored.Above), tenant.MaxDepth-1)
		}
		names, repaid := s.conn.keys.names()+string(p.Name)+"/", k.repaidOf(p.Name)
		compares = append(compares, exists(k.project(p.Parent)),
			absent(names).WithRange(clientv3.GetPrefixRangeEnd(names)),
			absent(repaid).WithRange(clientv3.GetPrefixRangeEnd(repaid)))
		ops = append(ops, clientv3.OpPut(k.below(p.Parent, p.Name), ""),
			clientv3.OpPut(k.used(p.Name), encode(count{Ready: true})))
	}
	stored.Generation = 0
	done, err := s.conn.etcd.Txn(ctx).If(compares...).
		Then(append(ops, clientv3.OpPut(k.project(p.Name), encode(stored)))...).
		Else(clientv3.OpGet(k.project(p.Name), clientv3.WithCountOnly())).Commit()
	if err != nil {
		return p, s.conn.wrap(err, "create project %s", p.Name)
	}
	if !done.Succeeded {
		if done.Responses[0].GetResponseRange().Count > 0 {
			return p, croft.Errorf(croft.Conflict, "there is a project %s already: choose another name", p.Name)
		}
		return p, croft.Errorf(croft.Conflict, "create project %s below %s: it has instances already, or %s was removed: "+
			"create it without a parent, or destroy them first and try again", p.Name, p.Parent, p.Parent)
	}
	p.Generation = done.Header.Revision
	return p, nil
}

// Change implements tenant.Projects.
func (s *Projects) Change(ctx context.Context, p tenant.Project) (tenant.Project, error) {
	if err := p.Check(); err != nil {
		return p, err
	}
	stored, err := s.find(ctx, p.Name)
	if err != nil {
		return p, err
	}
	if stored.Generation != p.Generation {
		return p, changedMeanwhile(p.Name)
	}
	stored.Note, stored.Members, stored.Limits, stored.Generation = p.Note, p.Members, p.Limits, 0
	key := s.conn.keys.quota().project(p.Name)
	done, err := s.conn.etcd.Txn(ctx).If(unchanged(key, p.Generation)).Then(clientv3.OpPut(key, encode(stored))).Commit()
	if err != nil {
		return p, s.conn.wrap(err, "change project %s", p.Name)
	}
	if !done.Succeeded {
		return p, changedMeanwhile(p.Name)
	}
	stored.Generation = done.Header.Revision
	return stored.Project, nil
}

func changedMeanwhile(name croft.Project) error {
	return croft.Errorf(croft.Conflict, "project %s was changed by somebody else: look at it and try again", name)
}

func (s *Projects) find(ctx context.Context, name croft.Project) (storedProject, error) {
	got, err := s.conn.etcd.Get(ctx, s.conn.keys.quota().project(name))
	if err != nil {
		return storedProject{}, s.conn.wrap(err, "read project %s", name)
	}
	if len(got.Kvs) == 0 {
		return storedProject{}, croft.Errorf(croft.NotFound, "there is no project %s", name)
	}
	return s.conn.decodeProject(got.Kvs[0])
}

// Remove implements tenant.Projects.
func (s *Projects) Remove(ctx context.Context, name croft.Project) error {
	if err := name.Check(); err != nil { // it becomes part of keys
		return err
	}
	p, err := s.find(ctx, name)
	if err != nil {
		return err
	}
	if err := s.conn.settle(ctx); err != nil {
		return err
	}
	k := s.conn.keys.quota()
	var compares []clientv3.Cmp
	for _, prefix := range []string{s.conn.keys.names() + string(name) + "/", k.allBelow(name), k.repaidOf(name)} {
		compares = append(compares, absent(prefix).WithRange(clientv3.GetPrefixRangeEnd(prefix)))
	}
	done, err := s.conn.etcd.Txn(ctx).
		If(append(compares, unchanged(k.project(name), p.Generation))...).
		Then(clientv3.OpDelete(k.project(name)), clientv3.OpDelete(k.used(name)),
			clientv3.OpDelete(k.below(p.Parent, name)),
			clientv3.OpDelete(s.conn.keys.sshKeys(name), clientv3.WithPrefix())).Commit()
	if err != nil {
		return s.conn.wrap(err, "remove project %s", name)
	}
	if !done.Succeeded {
		return croft.Errorf(croft.Conflict, "project %s has instances, or projects below it: destroy and remove those "+
			"first", name)
	}
	return nil
}

// Defaults implements tenant.Projects.
func (s *Projects) Defaults(ctx context.Context) (d tenant.Defaults, err error) {
	got, err := s.conn.etcd.Get(ctx, s.conn.keys.quota().defaults())
	if err != nil {
		return d, s.conn.wrap(err, "read the default limits")
	}
	if len(got.Kvs) > 0 {
		err = s.conn.decode(got.Kvs[0].Key, got.Kvs[0].Value, &d)
		d.Generation = got.Kvs[0].ModRevision
	}
	return d, err
}

// SetDefaults implements tenant.Projects.
func (s *Projects) SetDefaults(ctx context.Context, d tenant.Defaults) (tenant.Defaults, error) {
	if err := d.Limits.Check(); err != nil {
		return d, err
	}
	key, before := s.conn.keys.quota().defaults(), d.Generation
	d.Generation = 0
	done, err := s.conn.etcd.Txn(ctx).If(unchanged(key, before)).Then(clientv3.OpPut(key, encode(d))).Commit()
	if err != nil {
		return d, s.conn.wrap(err, "write the default limits")
	}
	if !done.Succeeded {
		return d, croft.Errorf(croft.Conflict, "the default limits were changed by somebody else: look at them and try again")
	}
	d.Generation = done.Header.Revision
	return d, nil
}

// Accounts implements tenant.Projects.
func (s *Projects) Accounts(ctx context.Context, names ...croft.Project) ([]tenant.Account, error) {
	if err := s.conn.settle(ctx); err != nil {
		return nil, err
	}
	var all []tenant.Account
	for _, name := range names {
		c, err := s.conn.readChain(ctx, name)
		if err != nil {
			return nil, err
		}
		all = append(all, c.accounts()[0])
	}
	return all, nil
}

// storedProject is the value of a project's record. Parents never change, so the whole chain is stored.
type storedProject struct {
	tenant.Project

	Above []croft.Project `json:"above,omitempty"` // the nearest first
}
