package server

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"croft"
	"croft/pool"
)

// Tickets opens, reads and closes tickets on behalf of the sender of a request, which is in the request's context: a
// client has its quota and sees only its own tickets, an admin sees all tickets.
type Tickets struct{ s *Server }

// RPC serves tickets over a protocol other than the JSON API, at /RPC2 and at POST /. Requests that reach it are
// authorized, and this server leads.
type RPC func(Tickets) http.Handler

// Open opens a ticket owned by the sender. NoCapacity: the sender's open tickets have reached its quota; OverQuota: the
// project's tickets have reached its quota; Unavailable: the sender opens tickets too fast; Denied: a client names a
// project.
func (t Tickets) Open(ctx context.Context, o pool.Opening) (pool.TicketStatus, error) {
	c := callerOf(ctx)
	o.Owner = c.name
	if o.Project != "" && !c.may(RoleAdmin) {
		return pool.TicketStatus{}, croft.Errorf(croft.Denied,
			"the token %s is a client's, and only admins open tickets of projects: leave the project out", c.name)
	}
	if err := t.s.quotas.bound(c, t.s.Quota, &o); err != nil {
		return pool.TicketStatus{}, err
	}
	return t.s.Manager.Open(ctx, o)
}

// Get returns a ticket and renews its lease. NotFound.
func (t Tickets) Get(ctx context.Context, id pool.TicketID) (pool.TicketStatus, error) {
	if err := t.owned(ctx, id); err != nil {
		return pool.TicketStatus{}, err
	}
	return t.s.Manager.Get(ctx, id)
}

// Wait returns the ticket once it has a resource or has ended. NotFound.
func (t Tickets) Wait(ctx context.Context, id pool.TicketID) (pool.TicketStatus, error) {
	if err := t.owned(ctx, id); err != nil {
		return pool.TicketStatus{}, err
	}
	return t.s.Manager.Wait(ctx, id)
}

// Close gives a ticket's resource back. It returns nil also for a ticket that ended so long ago that its owner is
// forgotten. NotFound.
func (t Tickets) Close(ctx context.Context, id pool.TicketID) error {
	err := t.owned(ctx, id)
	if err == nil {
		err = t.s.Manager.Close(ctx, id)
	}
	if t.s.Manager.Forgotten(id) {
		return nil
	}
	return err
}

// owned treats another client's ticket as missing, because numbers can be guessed, and a ticket's resource is only for
// its owner. NotFound.
func (t Tickets) owned(ctx context.Context, id pool.TicketID) error {
	if callerOf(ctx).may(RoleAdmin) && projectsOf(ctx) == nil {
		return nil
	}
	st, err := t.s.Manager.Peek(id)
	if err == nil && !owns(ctx, st.Ticket) || projectsOf(ctx) != nil && errors.Is(err, croft.NotFound) {
		err = croft.Errorf(croft.NotFound, "there is no ticket %d", id)
	}
	return err
}

type withinKey struct{}

// chosenProject is a project whose tickets a request selects.
type chosenProject struct {
	name   croft.Project
	id     croft.ProjectID
	byName bool // match tickets by name only, and ignore the identity
}

func (p chosenProject) has(t pool.Ticket) bool {
	return t.Project == p.name && (p.byName || t.Of(p.name, p.id))
}

// projectsOf returns the projects to whose tickets a request of an admin is limited; nil: the request is not limited.
func projectsOf(ctx context.Context) []chosenProject {
	projects, _ := ctx.Value(withinKey{}).([]chosenProject)
	return projects
}

// owns reports whether the sender of a request may see a ticket.
func owns(ctx context.Context, t pool.Ticket) bool {
	c := callerOf(ctx)
	switch projects := projectsOf(ctx); {
	case projects != nil:
		return t.Project != "" && slices.ContainsFunc(projects, func(p chosenProject) bool { return p.has(t) })
	case c.may(RoleAdmin):
		return true
	}
	return t.Owner == c.name
}
