package etcdstore

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/schedule"
)

// SSHKeys stores the public SSH keys of projects.
type SSHKeys struct{ conn *conn }

var _ schedule.Keys = (*SSHKeys)(nil)

// AddKey implements schedule.Keys.
func (s *SSHKeys) AddKey(ctx context.Context, k schedule.Key) error {
	if err := k.Project.Check(); err != nil { // it becomes part of the key
		return err
	}
	key := s.conn.keys.sshKey(k.Project, k.Name)
	done, err := s.conn.etcd.Txn(ctx).If(absent(key)).Then(clientv3.OpPut(key, encode(k))).Commit()
	if err != nil {
		return s.conn.wrap(err, "write the key %s", k.Name)
	}
	if !done.Succeeded {
		return croft.Errorf(croft.Conflict, "there is a key %s already; choose another name or remove that one", k.Name)
	}
	return nil
}

// ListKeys implements schedule.Keys.
func (s *SSHKeys) ListKeys(ctx context.Context, project croft.Project) ([]schedule.Key, error) {
	return readAll[schedule.Key](ctx, s.conn, "list the keys of the project "+string(project),
		s.conn.keys.sshKeys(project), 0) // in etcd's order by key, which ends in the name
}

// RemoveKey implements schedule.Keys.
func (s *SSHKeys) RemoveKey(ctx context.Context, project croft.Project, name string) error {
	key := s.conn.keys.sshKey(project, name)
	done, err := s.conn.etcd.Txn(ctx).If(exists(key)).Then(clientv3.OpDelete(key)).Commit()
	if err != nil {
		return s.conn.wrap(err, "remove the key %s", name)
	}
	if !done.Succeeded {
		return croft.Errorf(croft.NotFound, "there is no key %s; `croft key list` shows all", name)
	}
	return nil
}
