package client

import (
	"context"

	"croft"
	"croft/control/api"
	"croft/control/cloud"
	"croft/hosts"
	"croft/hosts/audit"
	"croft/internal/wording"
)

// maintenance implements cloud.Maintenance, for operators.
type maintenance struct{ *Client }

// Drain implements cloud.Maintenance.
func (m maintenance) Drain(ctx context.Context, idOrName string) (hosts.Host, error) {
	return m.changed(ctx)(m.DrainHost(ctx, api.HostNamed{ID: idOrName}))
}

// Enable implements cloud.Maintenance.
func (m maintenance) Enable(ctx context.Context, idOrName string) (hosts.Host, error) {
	return m.changed(ctx)(m.EnableHost(ctx, api.HostNamed{ID: idOrName}))
}

// Accept implements cloud.Maintenance.
func (m maintenance) Accept(ctx context.Context, idOrName string) (hosts.Host, error) {
	return m.changed(ctx)(m.AcceptHost(ctx, api.HostNamed{ID: idOrName}))
}

// Forget implements cloud.Maintenance.
func (m maintenance) Forget(ctx context.Context, idOrName string, force bool) (hosts.Host, error) {
	return m.changed(ctx)(m.ForgetHost(ctx, api.HostRemoval{HostNamed: api.HostNamed{ID: idOrName}, Force: force}))
}

// MoveAll implements cloud.Maintenance.
func (m maintenance) MoveAll(ctx context.Context, h hosts.Host) (all []hosts.Moved, err error) {
	list, err := m.EmptyHost(ctx, api.HostEmptying{HostNamed: api.HostNamed{ID: string(h.ID)}})
	for _, one := range list.Moves {
		all = append(all, one.Moved())
	}
	if err == nil && list.Error != "" {
		err = croft.Errorf(croft.Unavailable, "%s", list.Error)
	}
	return all, hostList(m).denied(ctx, err)
}

// RemoveMember implements cloud.Maintenance.
func (m maintenance) RemoveMember(ctx context.Context, h hosts.Host) error {
	_, err := m.changed(ctx)(m.Client.RemoveMember(ctx, api.HostNamed{ID: string(h.ID)}))
	return err
}

func (m maintenance) changed(ctx context.Context) func(api.Host, error) (hosts.Host, error) {
	return func(h api.Host, err error) (hosts.Host, error) { return h.Host, hostList(m).denied(ctx, err) }
}

// audits implements cloud.Audits, for operators.
type audits struct{ *Client }

// Audit implements cloud.Audits.
func (a audits) Audit(ctx context.Context) (audit.Report, error) { return a.AuditCloud(ctx) }

// Repair implements cloud.Audits.
func (a audits) Repair(ctx context.Context) (audit.Report, error) { return a.RepairCloud(ctx) }

// invitations implements cloud.Tokens, for operators.
type invitations struct{ *Client }

// Invite implements cloud.Tokens. Invalid: addresses of etcd or Placement are given, which only a cloud whose API is
// served in this process takes from the caller.
func (i invitations) Invite(ctx context.Context, wanted cloud.Invitation) (cloud.Token, error) {
	if (wanted.SameEtcd || wanted.SamePlacement) && i.end == nil {
		return cloud.Token{}, croft.Errorf(croft.Invalid, "the cloud says itself where its etcd and Placement are")
	}
	made, err := i.CreateInvitation(ctx, api.NewInvitation{Note: wanted.Note, Host: wanted.Host,
		Life: wording.ForPrograms(wanted.Life), Member: wanted.Member,
		SameEtcd: wanted.SameEtcd, SamePlacement: wanted.SamePlacement})
	return made.Made(), err
}

// List implements cloud.Tokens.
func (i invitations) List(ctx context.Context) (all []cloud.Token, err error) {
	list, err := i.ListInvitations(ctx)
	for _, one := range list.Invitations {
		all = append(all, one.Made())
	}
	return all, err
}

// Revoke implements cloud.Tokens.
func (i invitations) Revoke(ctx context.Context, name string) (cloud.Token, error) {
	ended, err := i.RevokeInvitation(ctx, api.InvitationNamed{Name: name})
	return ended.Made(), err
}
