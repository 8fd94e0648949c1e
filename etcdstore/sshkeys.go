package etcdstore

import (
	"context"

	"croft"
	"croft/etcdstore/internal/shelf"
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
	return shelf.Shelf[schedule.Key]{Conn: c.shared(), Prefix: c.keys.allSSHKeys(), Charge: chargeOfKey}.Source()
}

// of returns the keys of a project, by name.
func (s *SSHKeys) of(p croft.Project) shelf.Shelf[schedule.Key] {
	return shelf.Shelf[schedule.Key]{Conn: s.conn.shared(), Noun: "key", Prefix: s.conn.keys.sshKeys(p),
		Charge: chargeOfKey, Projects: s.projects,
		Missing: func(_ context.Context, name string) error {
			return croft.Errorf(croft.NotFound, "there is no key %s; `croft key list` shows all", name)
		},
		Differs: func(name string, _, _ int64) error {
			return croft.Errorf(croft.Conflict, "there is a key %s already; choose another name or remove that one", name)
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
	_, err := s.of(k.Project).Set(ctx, k.Name, 0, k)
	return err
}

// ListKeys implements schedule.Keys.
func (s *SSHKeys) ListKeys(ctx context.Context, project croft.Project) ([]schedule.Key, error) {
	return s.of(project).List(ctx, 0)
}

// RemoveKey implements schedule.Keys.
func (s *SSHKeys) RemoveKey(ctx context.Context, project croft.Project, name string) error {
	return s.of(project).Remove(ctx, name, nil, nil)
}
