package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"croft"
	"croft/control/actions"
	"croft/control/api"
	pools "croft/pool/api"
	"croft/tenant/access"
)

var ticketOperations = noun{Tag: "tickets", Home: true,
	Description: "A ticket is a project's right to one resource of a pool, and counts against its quota while it " +
		"is open. With `wait` a request waits until the ticket has its resource or has ended, and answers 200. A " +
		"wait that runs out of time, or that would be in vain (`never`), answers 202.",
	Operations: []Operation{
		do(Operation{ID: "listTickets", At: "GET /v1/tickets", May: access.Reads, Summary: "List tickets",
			Description: "The newest first. For operators without a project, also tickets that clients of the " +
				"manager opened."}, listTickets),
		do(
			Operation{
				ID:      "openTicket",
				At:      "POST /v1/tickets",
				May:     access.Changes,
				Summary: "Open a ticket",
				Also:    accepted,
				Long:    true,
				Description: "For a resource that has all of the tags, of a pool of the project or a shared one. A " +
					"caller that chooses a key may repeat the request, also when it does not know whether the first " +
					"one was heard: the same key gets the same ticket of the project, another body is refused (409 " +
					"uuid_reused). 200: the ticket has its resource. 202: it waits.",
			},
			openTicket,
		),
		do(
			Operation{
				ID:          "getTicket",
				At:          "GET /v1/tickets/{id}",
				May:         access.Reads,
				Summary:     "Get a ticket",
				Also:        accepted,
				Long:        true,
				Description: "A request counts as use, so it restarts the lease.",
			},
			getTicket,
		),
		do(Operation{ID: "closeTicket", At: "DELETE /v1/tickets/{id}", May: access.Changes,
			Summary:     "Close a ticket, which gives its resource back",
			Description: "Repeating it is no error while the ticket is remembered."},
			asksForTicket((*pools.Client).Close)),
		do(Operation{ID: "renewTicket", At: "POST /v1/tickets/{id}/renew", May: access.Changes,
			Summary:     "Restart the lease of a ticket",
			Description: "409 bad_state if it has ended, or has no lease."}, asksForTicket((*pools.Client).Renew)),
	},
}

func openTicket(ctx context.Context, c *call, in api.NewTicket) (t pools.Ticket, err error) {
	m, err := ticketsIn(c, access.Within(c.home()))
	if err != nil {
		return t, err
	}
	id, err := c.identityOf(c.home())
	if err != nil {
		return t, err
	}
	brief, cancel := c.brief()
	defer cancel()
	t, err = m.Open(brief, pools.Opening{Tags: in.Tags, Sandbox: in.Sandbox, TTL: in.TTL, Key: in.Key,
		Project: string(c.home()), ProjectID: string(id)})
	if err != nil {
		return t, fromManager(err)
	}
	c.action.about(c.home(), ticketNamed(t))
	if !asGiven(in, t) {
		return t, api.NewProblem(api.UUIDReused, "the key "+strconv.Quote(api.Clip(in.Key))+
			" is that of another ticket: choose another one, or none")
	}
	c.action.record(c, actions.Done) // independently of how the wait ends
	c.w.Header().Set("Location", "/v1/tickets/"+strconv.FormatInt(t.ID, 10))
	return awaited(ctx, c, m, t, ticketPatience(in.TicketWait), http.StatusAccepted)
}

// ticketNamed returns a ticket as an object of the action log.
func ticketNamed(t pools.Ticket) actions.Object {
	return actions.Object{Kind: actions.Ticket, Name: strconv.FormatInt(t.ID, 10)}
}

// asGiven reports whether a ticket matches a body. A sandbox or lease missing from the body matches any, because the
// manager chose it.
func asGiven(given api.NewTicket, t pools.Ticket) bool {
	tags := slices.Compact(slices.Sorted(slices.Values(given.Tags)))
	difference := time.Duration(given.TTL - t.TTL).Abs() // TTLs with a fraction differ by rounding
	return slices.Equal(tags, t.Tags) && (given.Sandbox == "" || given.Sandbox == t.Sandbox) &&
		(given.TTL == 0 || difference < time.Millisecond)
}

// ticketPatience returns how long the request wants to wait for a ticket; 0: it does not wait.
func ticketPatience(in api.TicketWait) time.Duration {
	if in.Wait == "" {
		return 0
	}
	return in.Timeout.Duration()
}

// findTicket returns the ticket that the path names, by calling ask with a client restricted to the tickets that the
// caller sees.
func findTicket(c *call, name string, ask func(*pools.Client, context.Context, int64) (pools.Ticket, error)) (
	m *pools.Client, t pools.Ticket, err error) {
	if m, err = ticketsIn(c, namedWithin(c)); err != nil {
		return m, t, err
	}
	id, err := pools.ParseTicketID(name)
	if err != nil || strconv.FormatInt(id, 10) != name {
		return m, t, api.Hidden("ticket", name)
	}
	ctx, cancel := c.brief()
	defer cancel()
	t, err = ask(m, ctx, id)
	if errors.Is(err, croft.NotFound) {
		return m, t, api.Hidden("ticket", name)
	}
	if err != nil {
		return m, t, fromManager(err)
	}
	c.action.about(croft.Project(t.Project), ticketNamed(t))
	return m, t, nil
}

func getTicket(ctx context.Context, c *call, in api.TicketAwaited) (pools.Ticket, error) {
	patience := ticketPatience(in.TicketWait)
	m, t, err := findTicket(c, in.ID, (*pools.Client).Ticket)
	if err != nil {
		return t, err
	}
	waiting := http.StatusOK
	if patience > 0 {
		waiting = http.StatusAccepted
	}
	return awaited(ctx, c, m, t, patience, waiting)
}

// asksForTicket returns an operation that changes a ticket, without a further check: a caller with the right to change
// one has it in every project that it sees.
func asksForTicket(ask func(*pools.Client, context.Context, int64) (pools.Ticket, error)) func(context.Context, *call,
	api.TicketNamed) (pools.Ticket, error) {
	return func(ctx context.Context, c *call, in api.TicketNamed) (pools.Ticket, error) {
		m, t, err := findTicket(c, in.ID, ask)
		if err != nil {
			return t, err
		}
		return awaited(ctx, c, m, t, 0, http.StatusOK)
	}
}

// awaited returns a ticket as the caller may see it, after waiting for at most patience. waiting is the HTTP status for
// a ticket that is still waiting.
func awaited(ctx context.Context, c *call, m *pools.Client, t pools.Ticket, patience time.Duration, waiting int) (
	pools.Ticket, error) {
	if patience > 0 {
		var err error
		if t, err = await(ctx, c, m, t, patience); err != nil {
			return t, err
		}
	}
	if t.Waiting() {
		c.status = waiting
	}
	brief, cancel := c.brief()
	defer cancel()
	shown, err := ticketsFor(brief, c, t)
	if err != nil {
		return t, err
	}
	return shown[0], nil
}

// ticketTurn bounds one poll of the manager while a request waits for a ticket.
const ticketTurn = 20 * time.Second

// await returns a ticket once it no longer waits or can never be served, or when patience has elapsed.
func await(ctx context.Context, c *call, m *pools.Client, t pools.Ticket, patience time.Duration) (pools.Ticket,
	error) {
	until := time.Now().Add(patience)
	for t.Waiting() && !t.Never {
		left := time.Until(until)
		if left <= 0 {
			break
		}
		var err error
		t, err = m.Poll(ctx, t.ID, min(left, ticketTurn))
		if err != nil && ctx.Err() != nil && c.r.Context().Err() == nil {
			return t, errRevoked
		}
		if err != nil {
			return t, fromManager(err)
		}
	}
	return t, nil
}

func listTickets(ctx context.Context, c *call, in api.TicketFilter) (page api.TicketList, err error) {
	m, err := ticketsIn(c, listed(c))
	if err != nil {
		return page, err
	}
	after := int64(0)
	if in.After != "" {
		if after, err = pools.ParseTicketID(in.After); err != nil {
			return page, api.NewProblem(api.BadQuery, "after is no number of a ticket, such as a page has as next")
		}
	}
	all, err := m.Tickets(ctx, pools.Selection{All: in.All})
	if err != nil {
		return page, fromManager(err)
	}
	chosen := slices.DeleteFunc(all.Tickets, func(t pools.Ticket) bool { return after > 0 && t.ID >= after })
	slices.Reverse(chosen)
	if most := cmp.Or(in.Limit, pageLength); len(chosen) > most {
		chosen = chosen[:most]
		page.Next = strconv.FormatInt(chosen[most-1].ID, 10)
	}
	if page.Tickets, err = ticketsFor(ctx, c, chosen...); err != nil {
		return page, err
	}
	if !c.caller.Operator() {
		for i := range page.Tickets { // as lists of instances have no user-data
			if r := page.Tickets[i].Resource; r != nil {
				r.Data = nil
			}
		}
	}
	return page, nil
}

// ticketsFor returns tickets as the caller may see them.
func ticketsFor(ctx context.Context, c *call, all ...pools.Ticket) ([]pools.Ticket, error) {
	shown := append([]pools.Ticket{}, all...)
	if c.caller.Operator() {
		return shown, nil
	}
	var known []pools.Pool
	if slices.ContainsFunc(shown, func(t pools.Ticket) bool { return t.Waiting() && !t.Never }) {
		var err error
		if known, err = c.Pools.Pools(ctx); err != nil {
			return nil, fromManager(err)
		}
	}
	for i := range shown {
		t := &shown[i]
		t.Owner = ""
		if t.Waiting() && !t.Never { // the reason names only pools that its project may use
			t.WaitsFor = waitsFor(*t, known)
		}
		if t.State == pools.TicketFailed {
			t.Reason = "its resource broke, or was taken away"
		}
		if t.Resource != nil {
			r := handedOut(c, *t)
			t.Resource = &r
		}
	}
	return shown, nil
}

// handedOut returns the resource of a ticket as the caller may see it: its data is only for callers who may open
// tickets.
func handedOut(c *call, t pools.Ticket) pools.Resource {
	r := resourceIn(c, false, *t.Resource)
	if access.May(c.caller, access.Changes, croft.Project(t.Project)) {
		r.Data, r.Facts = t.Resource.Data, factsFor(c, t.Resource.Facts)
	}
	return r
}

// factsFor returns facts about an instance without its host: its address, and the host key by which SSH recognizes it.
// Facts about the owner are included only if the caller sees that project.
func factsFor(c *call, facts json.RawMessage) json.RawMessage {
	var all map[string]any
	if len(facts) == 0 || json.Unmarshal(facts, &all) != nil {
		return nil
	}
	shown := map[string]any{"address": all["address"]}
	if key, ok := all["host_key"]; ok {
		shown["host_key"] = key
	}
	if project, ok := all["project"].(string); ok && c.scope.Sees(croft.Project(project)) {
		for _, field := range []string{"instance", "name", "project"} {
			shown[field] = all[field]
		}
	}
	text, err := json.Marshal(shown)
	if err != nil {
		return nil
	}
	return text
}

// waitsFor describes what a ticket waits for, without numbers of other projects and without the reasons of failed
// starts.
func waitsFor(t pools.Ticket, known []pools.Pool) string {
	var all []string
	for _, p := range known {
		if p.Mode == "removed" || !p.Shared && p.Project != t.Project || !hasTags(p, t.Tags) {
			continue
		}
		switch {
		case p.Mode != "active":
			all = append(all, "pool "+p.Name+" is "+p.Mode)
		case p.Starting > 0:
			all = append(all, "pool "+p.Name+" is starting more")
		case !p.BackOff.IsZero():
			all = append(all, "pool "+p.Name+" fails to start anything at the moment")
		default:
			all = append(all, "pool "+p.Name+" has nothing ready")
		}
	}
	if len(all) == 0 {
		return "no pool has anything for it now"
	}
	return strings.Join(all, "; ")
}

func hasTags(p pools.Pool, names []string) bool {
	has := map[string]bool{}
	for _, tag := range slices.Concat(p.Tags, p.OnDemand) {
		has[tag.Name] = true
	}
	return !slices.ContainsFunc(names, func(name string) bool { return !has[name] })
}
