package etcdstore

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/internal/kv"
	"croft/etcdstore/tenants"
	"croft/schedule"
	"croft/tenant"
)

// SSHKeys stores the public SSH keys of projects.
type SSHKeys struct {
	conn     *conn
	projects *tenants.Projects
}

// chargedKeys returns the source of the charges for stored keys.
func chargedKeys(c *conn) tenants.Source {
	return tenants.Source{Prefix: c.keys.allSSHKeys(), Charge: func(key, value []byte) (tenants.Charge, error) {
		var k schedule.Key
		err := c.decode(key, value, &k)
		return chargeOfKey(k), err
	}}
}

func chargeOfKey(k schedule.Key) tenants.Charge {
	return tenants.Charge{Project: k.Project, Amounts: tenants.SizeOf(tenant.CountKeys, k)}
}

var _ schedule.Keys = (*SSHKeys)(nil)

// AddKey implements schedule.Keys.
func (s *SSHKeys) AddKey(ctx context.Context, k schedule.Key) error {
	if err := k.Project.Check(); err != nil { // the project becomes part of the key
		return err
	}
	key := s.conn.keys.sshKey(k.Project, k.Name)
	revision, _, err := s.projects.Commit(ctx, tenants.Change{Project: k.Project, Charge: chargeOfKey(k).Amounts,
		If: []clientv3.Cmp{absent(key)}, Then: []clientv3.Op{clientv3.OpPut(key, encode(k))},
		What: "write the key " + k.Name})
	if err != nil {
		return err
	}
	if revision == 0 {
		return croft.Errorf(croft.Conflict, "there is a key %s already; choose another name or remove that one", k.Name)
	}
	return nil
}

// ListKeys implements schedule.Keys.
func (s *SSHKeys) ListKeys(ctx context.Context, project croft.Project) ([]schedule.Key, error) {
	return readAll[schedule.Key](ctx, s.conn, "list the keys of the project "+string(project),
		s.conn.keys.sshKeys(project), 0) // sorted by etcd by key, and so by name
}

// RemoveKey implements schedule.Keys.
func (s *SSHKeys) RemoveKey(ctx context.Context, project croft.Project, name string) error {
	key := s.conn.keys.sshKey(project, name)
	for {
		got, err := s.conn.etcd.Get(ctx, key)
		if err != nil {
			return s.conn.wrap(err, "read the key %s", name)
		}
		if len(got.Kvs) == 0 {
			break
		}
		var k schedule.Key
		if err := s.conn.decode(got.Kvs[0].Key, got.Kvs[0].Value, &k); err != nil {
			return err
		}
		revision, _, err := s.projects.Commit(ctx, tenants.Change{Project: project,
			Charge: tenant.Amounts{}.Minus(chargeOfKey(k).Amounts),
			If:     []clientv3.Cmp{kv.Unchanged(key, got.Kvs[0].ModRevision)},
			Then:   []clientv3.Op{clientv3.OpDelete(key)}, What: "remove the key " + name})
		if err != nil || revision != 0 {
			return err
		} // otherwise another program changed it, so the retries end
	}
	return croft.Errorf(croft.NotFound, "there is no key %s; `croft key list` shows all", name)
}
