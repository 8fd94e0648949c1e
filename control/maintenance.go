package control

import (
	"context"
	"errors"
	"net/http"
	"time"

	"croft"
	"croft/cloud"
	"croft/compute"
	"croft/control/actions"
	"croft/control/api"
	"croft/hosts"
	"croft/hosts/audit"
	"croft/internal/wording"
	"croft/tenant"
)

// maintains returns the handler of one change of the host that the path names.
func maintains(change func(m cloud.Maintenance, ctx context.Context, c *call, idOrName string) (hosts.Host,
	error)) func(*call) error {
	return func(c *call) error {
		ctx, cancel := c.brief()
		defer cancel()
		h, err := change(c.Cloud.Maintenance, ctx, c, c.r.PathValue("id"))
		if err != nil {
			return err
		}
		c.action.about("", aboutHost(h))
		return c.answer(http.StatusOK, api.Host{Host: h})
	}
}

func aboutHost(h hosts.Host) actions.Object {
	return actions.Object{Kind: actions.Host, ID: string(h.ID), Name: h.Name}
}

var (
	drainHost = maintains(func(m cloud.Maintenance, ctx context.Context, _ *call, name string) (hosts.Host, error) {
		return m.Drain(ctx, name)
	})
	enableHost = maintains(func(m cloud.Maintenance, ctx context.Context, _ *call, name string) (hosts.Host, error) {
		return m.Enable(ctx, name)
	})
	acceptHost = maintains(func(m cloud.Maintenance, ctx context.Context, _ *call, name string) (hosts.Host, error) {
		return m.Accept(ctx, name)
	})
	forgetHost = maintains(func(m cloud.Maintenance, ctx context.Context, c *call, name string) (hosts.Host, error) {
		h, err := m.Forget(ctx, name, c.flag("force"))
		for _, lost := range h.Lost {
			c.action.also(c, actions.InstanceLost, lost.Project,
				actions.Object{Kind: actions.Instance, ID: string(lost.ID), Name: lost.Name})
		}
		return h, err
	})
	removeMember = maintains(func(m cloud.Maintenance, ctx context.Context, c *call, name string) (hosts.Host, error) {
		h, err := c.Cloud.Hosts.Find(ctx, name)
		if h.ID == "" {
			return h, err
		}
		return h, m.RemoveMember(ctx, h)
	})
)

// emptyHost orders the moves of a host's instances. It runs until all are ordered or the client disconnects. Each
// unfinished move has a record, from which the next request or an audit finishes it.
func emptyHost(c *call) error {
	patience, err := patience(c, "")
	if err != nil {
		return err
	}
	ctx, end := c.lasting()
	defer end()
	h, err := c.Cloud.Hosts.Find(ctx, c.r.PathValue("id"))
	if h.ID == "" {
		return err
	}
	c.action.about("", aboutHost(h))
	moved, err := c.Cloud.Maintenance.MoveAll(ctx, h)
	if err != nil && len(moved) == 0 {
		return err
	}
	list := api.MoveList{Moves: []api.Move{}}
	for _, m := range moved {
		list.Moves = append(list.Moves, api.MoveOf(m))
	}
	if err != nil {
		list.Error = err.Error()
	}
	c.action.record(c, actions.Done) // independently of how the wait ends
	if err != nil || !c.query.Has("wait") {
		return c.answer(http.StatusAccepted, list)
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = hosts.AwaitMoved(waiting, c.Cloud.Instances, h.ID, moved)
	switch {
	case errors.Is(waiting.Err(), context.DeadlineExceeded):
		return c.answer(http.StatusAccepted, list)
	case err != nil:
		return err
	}
	return c.answer(http.StatusOK, list)
}

func listUsages(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	h, err := c.Cloud.Hosts.Find(ctx, c.r.PathValue("id"))
	if h.ID == "" {
		return err
	}
	list := api.GuestUsageList{}
	if list.Usages, err = c.Cloud.Monitor.Usages(ctx, h.Host); err != nil {
		return err
	}
	if list.Usages == nil {
		list.Usages = []compute.Usage{}
	}
	return c.answer(http.StatusOK, list)
}

// auditTime bounds an audit, which asks the agents of many hosts.
const auditTime = 10 * time.Minute

func auditCloud(c *call) error  { return audited(c, c.Cloud.Audits.Audit) }
func repairCloud(c *call) error { return audited(c, c.Cloud.Audits.Repair) }

func audited(c *call, look func(context.Context) (audit.Report, error)) error {
	ctx, end := c.lasting()
	defer end()
	ctx, cancel := context.WithTimeout(ctx, auditTime)
	defer cancel()
	report, err := look(ctx)
	if err != nil {
		return err
	}
	report.Differences = append([]audit.Difference{}, report.Differences...) // never null
	return c.answer(http.StatusOK, report)
}

func listInvitations(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	all, err := c.Cloud.Tokens.List(ctx)
	if err != nil {
		return err
	}
	list := api.InvitationList{Invitations: []api.Invitation{}}
	for _, t := range all {
		list.Invitations = append(list.Invitations, api.InvitationOf(t))
	}
	return c.answer(http.StatusOK, list)
}

func createInvitation(c *call) error {
	var given api.NewInvitation
	if err := c.body(&given); err != nil {
		return err
	}
	life, err := wording.ParseDuration(given.Life)
	if err != nil || life < time.Second || life > cloud.LongestInvitation {
		return croft.Errorf(croft.Invalid, "life is %.40q: use a duration from 1s to %s", given.Life,
			wording.Duration(cloud.LongestInvitation))
	}
	ctx, cancel := c.brief()
	defer cancel()
	made, err := c.Cloud.Tokens.Invite(ctx, cloud.Invitation{Note: given.Note, Host: given.Host, Life: life,
		Member: given.Member, SameEtcd: given.SameEtcd, SamePlacement: given.SamePlacement})
	if err != nil {
		return err
	}
	c.action.about("", actions.Object{Kind: actions.Invitation, ID: made.Name, Name: given.Host})
	return c.answer(http.StatusCreated, api.InvitationOf(made))
}

func revokeInvitation(c *call) error {
	c.action.about("", actions.Object{Kind: actions.Invitation}) // the given name may be a whole token
	ctx, cancel := c.brief()
	defer cancel()
	ended, err := c.Cloud.Tokens.Revoke(ctx, c.r.PathValue("name"))
	if err != nil {
		return err
	}
	c.action.object.ID = ended.Name
	return c.answer(http.StatusOK, api.InvitationOf(ended))
}

func checkQuotas(c *call) error {
	ctx, end := c.lasting()
	defer end()
	ctx, cancel := context.WithTimeout(ctx, auditTime)
	defer cancel()
	found, err := c.Cloud.Projects.Check(ctx)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, api.DiscrepancyList{Discrepancies: append([]tenant.Discrepancy{}, found...)})
}

func recountQuota(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	if err := c.Cloud.Projects.Recount(ctx, c.project); err != nil {
		return err
	}
	accounts, err := c.Cloud.Projects.Accounts(ctx, c.project)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, accounts[0])
}
