package etcdstore

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/schedule"
)

// Keys stores the public SSH keys of projects.
type Keys struct{ *conn }

var _ schedule.Keys = (*Keys)(nil)

// AddKey implements schedule.Keys.
func (s *Keys) AddKey(ctx context.Context, k schedule.Key) error {
	if err := k.Project.Check(); err != nil { // it becomes part of the key
		return err
	}
	key := s.keys.sshKey(k.Project, k.Name)
	done, err := s.etcd.Txn(ctx).If(absent(key)).Then(clientv3.OpPut(key, encode(k))).Commit()
	if err != nil {
		return s.wrap(err, "write the key %s", k.Name)
	}
	if !done.Succeeded {
		return croft.Errorf(croft.Conflict, "there is a key %s already; choose another name or remove that one", k.Name)
	}
	return nil
}

// ListKeys implements schedule.Keys.
func (s *Keys) ListKeys(ctx context.Context, project croft.Project) ([]schedule.Key, error) {
	got, err := s.etcd.Get(ctx, s.keys.sshKeys(project), clientv3.WithPrefix())
	if err != nil {
		return nil, s.wrap(err, "list the keys of the project %s", project)
	}
	var all []schedule.Key // in etcd's order by key, which ends in the name
	for _, kv := range got.Kvs {
		var k schedule.Key
		if err := s.decode(kv.Key, kv.Value, &k); err != nil {
			return nil, err
		}
		all = append(all, k)
	}
	return all, nil
}

// RemoveKey implements schedule.Keys.
func (s *Keys) RemoveKey(ctx context.Context, project croft.Project, name string) error {
	key := s.keys.sshKey(project, name)
	done, err := s.etcd.Txn(ctx).If(exists(key)).Then(clientv3.OpDelete(key)).Commit()
	if err != nil {
		return s.wrap(err, "remove the key %s", name)
	}
	if !done.Succeeded {
		return croft.Errorf(croft.NotFound, "there is no key %s; `croft key list` shows all", name)
	}
	return nil
}
