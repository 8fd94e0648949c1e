package client

import (
	"context"
	"net/http"

	"croft"
	"croft/cloud"
	"croft/control/api"
	"croft/hosts"
	"croft/hosts/audit"
	"croft/internal/wording"
)

// maintenance implements cloud.Maintenance, for operators.
type maintenance struct{ *Client }

// Drain implements cloud.Maintenance.
func (m maintenance) Drain(ctx context.Context, idOrName string) (hosts.Host, error) {
	return m.change(ctx, http.MethodPost, path("", []string{"v1", "hosts", idOrName, "drain"}))
}

// Enable implements cloud.Maintenance.
func (m maintenance) Enable(ctx context.Context, idOrName string) (hosts.Host, error) {
	return m.change(ctx, http.MethodPost, path("", []string{"v1", "hosts", idOrName, "enable"}))
}

// Accept implements cloud.Maintenance.
func (m maintenance) Accept(ctx context.Context, idOrName string) (hosts.Host, error) {
	return m.change(ctx, http.MethodPost, path("", []string{"v1", "hosts", idOrName, "accept"}))
}

// Forget implements cloud.Maintenance.
func (m maintenance) Forget(ctx context.Context, idOrName string, force bool) (hosts.Host, error) {
	forced := ""
	if force {
		forced = "true"
	}
	return m.change(ctx, http.MethodDelete, path("", []string{"v1", "hosts", idOrName}, "force", forced))
}

// MoveAll implements cloud.Maintenance.
func (m maintenance) MoveAll(ctx context.Context, h hosts.Host) ([]hosts.Moved, error) {
	var list api.MoveList
	err := m.ask(ctx, http.MethodPost, path("", []string{"v1", "hosts", string(h.ID), "moves"}), nil, &list)
	if err != nil {
		return nil, hostList(m).denied(ctx, err)
	}
	var all []hosts.Moved
	for _, one := range list.Moves {
		all = append(all, one.Moved())
	}
	if list.Error != "" {
		return all, croft.Errorf(croft.Unavailable, "%s", list.Error)
	}
	return all, nil
}

// RemoveMember implements cloud.Maintenance.
func (m maintenance) RemoveMember(ctx context.Context, h hosts.Host) error {
	_, err := m.change(ctx, http.MethodDelete, path("", []string{"v1", "hosts", string(h.ID), "etcd"}))
	return err
}

func (m maintenance) change(ctx context.Context, method, path string) (hosts.Host, error) {
	var changed api.Host
	err := m.ask(ctx, method, path, nil, &changed)
	return changed.Host, hostList(m).denied(ctx, err)
}

// audits implements cloud.Audits, for operators.
type audits struct{ *Client }

// Audit implements cloud.Audits.
func (a audits) Audit(ctx context.Context) (report audit.Report, err error) {
	return report, a.ask(ctx, http.MethodGet, "/v1/audit", nil, &report)
}

// Repair implements cloud.Audits.
func (a audits) Repair(ctx context.Context) (report audit.Report, err error) {
	return report, a.ask(ctx, http.MethodPost, "/v1/audit", nil, &report)
}

// invitations implements cloud.Tokens, for operators.
type invitations struct{ *Client }

// Invite implements cloud.Tokens. Invalid: addresses of etcd or Placement are given, which only a cloud whose API is
// served in this process takes from the caller.
func (i invitations) Invite(ctx context.Context, wanted cloud.Invitation) (cloud.Token, error) {
	if (wanted.SameEtcd || wanted.SamePlacement) && i.end == nil {
		return cloud.Token{}, croft.Errorf(croft.Invalid, "the cloud says itself where its etcd and Placement are")
	}
	var made api.Invitation
	err := i.ask(ctx, http.MethodPost, "/v1/invitations", api.NewInvitation{Note: wanted.Note, Host: wanted.Host,
		Life: wording.ForPrograms(wanted.Life), Member: wanted.Member,
		SameEtcd: wanted.SameEtcd, SamePlacement: wanted.SamePlacement}, &made)
	return made.Made(), err
}

// List implements cloud.Tokens.
func (i invitations) List(ctx context.Context) ([]cloud.Token, error) {
	var list api.InvitationList
	err := i.ask(ctx, http.MethodGet, "/v1/invitations", nil, &list)
	var all []cloud.Token
	for _, one := range list.Invitations {
		all = append(all, one.Made())
	}
	return all, err
}

// Revoke implements cloud.Tokens.
func (i invitations) Revoke(ctx context.Context, name string) (cloud.Token, error) {
	var ended api.Invitation
	err := i.ask(ctx, http.MethodDelete, path("", []string{"v1", "invitations", name}), nil, &ended)
	return ended.Made(), err
}
