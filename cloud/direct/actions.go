package direct

import (
	"context"
	"os"
	"time"

	"croft"
	"croft/cloud"
	"croft/control/actions"
	"croft/etcdstore/actionlog"
	"croft/hosts"
	"croft/tenant"
	"croft/tenant/access"
)

// actionLog implements cloud.Actions for operators, who see all entries.
type actionLog struct{ store *actionlog.Log }

// List implements cloud.Actions.
func (a actionLog) List(ctx context.Context, f actions.Filter) (actions.Page, error) {
	return a.store.List(ctx, access.Everything(), f)
}

// recorded makes commands of operators write to the action log when they change hosts, aggregates, distances, policies,
// projects, quotas or tokens. It leaves out instances, keys, properties, and repairs of records.
func recorded(c *cloud.Cloud, log *actionlog.Log) {
	machine, _ := os.Hostname() // without it, the entry only lacks the machine
	j := &journal{log: log, user: LocalUser(), machine: machine, under: c.Connection}
	c.Policies = recordedPolicies{c.Policies, j}
	c.Aggregates, c.Distances = recordedAggregates{c.Aggregates, j}, recordedDistances{c.Distances, j}
	c.Maintenance, c.Projects = maintenance{c.Maintenance, j}, recordedProjects{c.Projects, j}
	c.Peers = recordedPeers{c.Peers, j}
	c.Access, c.Tokens, c.Connection = recordedAccess{c.Access, j}, recordedTokens{c.Tokens, j}, j
}

// maintenance records changes of hosts.
type maintenance struct {
	cloud.Maintenance
	journal *journal
}

func (m maintenance) host(ctx context.Context, operation, idOrName string, do func() (hosts.Host, error)) (hosts.Host,
	error) {
	began := time.Now()
	h, err := do()
	o := actions.Object{Kind: actions.Host, ID: string(h.ID), Name: h.Name}
	if err != nil {
		o = actions.Object{Kind: actions.Host, Name: idOrName}
	}
	m.journal.tell(ctx, began, operation, "", o, err)
	return h, err
}

// Drain implements cloud.Maintenance.
func (m maintenance) Drain(ctx context.Context, name string) (hosts.Host, error) {
	return m.host(ctx, "drainHost", name, func() (hosts.Host, error) { return m.Maintenance.Drain(ctx, name) })
}

// Enable implements cloud.Maintenance.
func (m maintenance) Enable(ctx context.Context, name string) (hosts.Host, error) {
	return m.host(ctx, "enableHost", name, func() (hosts.Host, error) { return m.Maintenance.Enable(ctx, name) })
}

// Accept implements cloud.Maintenance.
func (m maintenance) Accept(ctx context.Context, name string) (hosts.Host, error) {
	return m.host(ctx, "acceptHost", name, func() (hosts.Host, error) { return m.Maintenance.Accept(ctx, name) })
}

// Forget implements cloud.Maintenance.
func (m maintenance) Forget(ctx context.Context, name string, force bool) (hosts.Host, error) {
	began := time.Now()
	h, err := m.host(ctx, "forgetHost", name, func() (hosts.Host, error) {
		return m.Maintenance.Forget(ctx, name, force)
	})
	for _, lost := range h.Lost {
		m.journal.tell(ctx, began, actions.InstanceLost, lost.Project,
			actions.Object{Kind: actions.Instance, ID: string(lost.ID), Name: lost.Name}, nil)
	}
	return h, err
}

// MoveAll implements cloud.Maintenance.
func (m maintenance) MoveAll(ctx context.Context, h hosts.Host) (moved []hosts.Moved, err error) {
	_, err = m.host(ctx, "emptyHost", h.Name, func() (hosts.Host, error) {
		moved, err = m.Maintenance.MoveAll(ctx, h)
		return h, err
	})
	return moved, err
}

// RemoveMember implements cloud.Maintenance.
func (m maintenance) RemoveMember(ctx context.Context, h hosts.Host) error {
	_, err := m.host(ctx, "removeMember", h.Name, func() (hosts.Host, error) {
		return h, m.Maintenance.RemoveMember(ctx, h)
	})
	return err
}

// recordedProjects records changes of projects and quotas.
type recordedProjects struct {
	cloud.Projects
	journal *journal
}

func aboutProject(name croft.Project) actions.Object {
	return actions.Object{Kind: actions.Project, Name: string(name)}
}

// Create implements cloud.Projects.
func (p recordedProjects) Create(ctx context.Context, t tenant.Tenant) (tenant.Tenant, error) {
	began := time.Now()
	made, err := p.Projects.Create(ctx, t)
	p.journal.tell(ctx, began, "createProject", t.Parent, aboutProject(t.Name), err)
	return made, err
}

// Change implements cloud.Projects.
func (p recordedProjects) Change(ctx context.Context, t tenant.Tenant) (tenant.Tenant, error) {
	began := time.Now()
	changed, err := p.Projects.Change(ctx, t)
	p.journal.tell(ctx, began, "changeProject", t.Name, aboutProject(t.Name), err)
	return changed, err
}

// Remove implements cloud.Projects.
func (p recordedProjects) Remove(ctx context.Context, name croft.Project) error {
	began, parent := time.Now(), croft.Project("")
	all, err := p.Projects.List(ctx, name)
	for _, t := range all {
		if t.Name == name {
			parent = t.Parent
		}
	}
	if err == nil {
		err = p.Projects.Remove(ctx, name)
	}
	p.journal.tell(ctx, began, "removeProject", parent, aboutProject(name), err)
	return err
}

// SetDefaults implements cloud.Projects.
func (p recordedProjects) SetDefaults(ctx context.Context, d tenant.Defaults) (tenant.Defaults, error) {
	began := time.Now()
	set, err := p.Projects.SetDefaults(ctx, d)
	p.journal.tell(ctx, began, "setDefaultQuota", "", actions.Object{Kind: actions.Quota, Name: "default"}, err)
	return set, err
}

// Recount implements cloud.Projects.
func (p recordedProjects) Recount(ctx context.Context, name croft.Project) error {
	began := time.Now()
	err := p.Projects.Recount(ctx, name)
	p.journal.tell(ctx, began, "recountQuota", name, aboutProject(name), err)
	return err
}

// recordedAccess records when access tokens are created and revoked.
type recordedAccess struct {
	cloud.Access
	journal *journal
}

// Create implements cloud.Access.
func (a recordedAccess) Create(ctx context.Context, wanted cloud.NewAccess) (cloud.AccessToken, error) {
	began := time.Now()
	made, err := a.Access.Create(ctx, wanted)
	a.journal.tell(ctx, began, "createToken", wanted.Project,
		actions.Object{Kind: actions.Token, ID: string(made.ID), For: wanted.User}, err)
	return made, err
}

// Revoke implements cloud.Access.
func (a recordedAccess) Revoke(ctx context.Context, id access.TokenID) (cloud.AccessToken, error) {
	began := time.Now()
	ended, err := a.Access.Revoke(ctx, id)
	a.journal.tell(ctx, began, "revokeToken", ended.Project, actions.TokenNamed(string(id)), err)
	return ended, err
}

// recordedTokens records when join tokens are created and revoked.
type recordedTokens struct {
	cloud.Tokens
	journal *journal
}

// Invite implements cloud.Tokens.
func (t recordedTokens) Invite(ctx context.Context, i cloud.Invitation) (cloud.Token, error) {
	began := time.Now()
	made, err := t.Tokens.Invite(ctx, i)
	o := actions.Object{Kind: actions.Invitation, ID: made.Name, Name: i.Host}
	t.journal.tell(ctx, began, "createInvitation", "", o, err)
	return made, err
}

// Revoke implements cloud.Tokens.
func (t recordedTokens) Revoke(ctx context.Context, name string) (cloud.Token, error) {
	began := time.Now()
	ended, err := t.Tokens.Revoke(ctx, name)
	o := actions.Object{Kind: actions.Invitation, ID: ended.Name} // the given name may be a whole token
	t.journal.tell(ctx, began, "revokeInvitation", "", o, err)
	return ended, err
}
