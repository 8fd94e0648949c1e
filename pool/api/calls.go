package api

import (
	"context"
	"crypto/rand"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"croft"
)

// waitTurn is how long one request of Wait asks the server to wait.
const waitTurn = 20 * time.Second

func ticketPath(id int64) string { return "/v1/tickets/" + strconv.FormatInt(id, 10) }

// Open opens a ticket. It generates a missing Key, so that repeating a request whose answer was lost does not
// open a second ticket.
func (c *Client) Open(ctx context.Context, o Opening) (Ticket, error) {
	if o.Key == "" {
		o.Key = rand.Text()
	}
	return ask[Ticket](ctx, c, call{method: http.MethodPost, path: "/v1/tickets", body: o, patience: c.patience})
}

// Ticket returns a ticket. NotFound.
func (c *Client) Ticket(ctx context.Context, id int64) (Ticket, error) {
	return ask[Ticket](ctx, c, call{method: http.MethodGet, path: ticketPath(id), query: c.limited(nil),
		patience: c.patience})
}

// ProjectRef is a project's name and its identity, which is empty if the project has no record.
type ProjectRef struct {
	Name croft.Project
	ID   croft.ProjectID
}

// Within returns a client that sees only the tickets of the given projects; without projects, it sees no tickets. Its
// token must be an admin's. Both clients share their connections, and see the same pools and resources.
func (c *Client) Within(projects ...ProjectRef) *Client {
	within := *c
	within.projects = append([]ProjectRef{}, ProjectRef{})
	within.projects = append(within.projects, projects...)
	return &within
}

// limited adds the projects of the client to a query, which may be nil.
func (c *Client) limited(query url.Values) url.Values {
	if c.projects != nil {
		query = maps.Clone(query)
		if query == nil {
			query = url.Values{}
		}
		query.Del("project")
		for _, p := range c.projects {
			query.Add("project", string(p.Name))
			query.Add("project_id", string(p.ID))
		}
	}
	return query
}

// Waiting configures a wait.
type Waiting struct {
	Changed func(Ticket) // gets the waiting ticket from time to time; may be nil
	Never   bool         // continue waiting even if no pool can serve the ticket as configured
}

// Wait returns the ticket once it has a resource, has ended, or can never be served. It retries servers that do
// not answer until ctx ends, then returns Unavailable or the error of ctx. NotFound.
func (c *Client) Wait(ctx context.Context, id int64, w Waiting) (Ticket, error) {
	turn := time.Duration(0) // the first request is answered immediately
	for {
		t, err := c.await(ctx, id, turn, w.Never, 0)
		if err != nil || !t.Waiting() || t.Never && !w.Never {
			return t, err
		}
		if turn = waitTurn; w.Changed != nil {
			w.Changed(t)
		}
	}
}

// Poll waits for one turn, of at most two minutes: it returns the ticket once it no longer waits or can never be
// served, or else after the turn. NotFound; Unavailable: no server answered within the turn plus Config.Patience.
func (c *Client) Poll(ctx context.Context, id int64, turn time.Duration) (Ticket, error) {
	return c.await(ctx, id, turn, false, turn+c.patience)
}

func (c *Client) await(ctx context.Context, id int64, turn time.Duration, never bool, patience time.Duration) (Ticket,
	error) {
	query := url.Values{"wait": {turn.String()}, "never": {strconv.FormatBool(never)}}
	return ask[Ticket](ctx, c, call{method: http.MethodGet, path: ticketPath(id), query: c.limited(query),
		patience: patience})
}

// Close releases a ticket's resource, or cancels a waiting ticket. Closing twice is no error. NotFound.
func (c *Client) Close(ctx context.Context, id int64) (Ticket, error) {
	return ask[Ticket](ctx, c, call{method: http.MethodDelete, path: ticketPath(id), query: c.limited(nil),
		patience: c.patience})
}

// Renew restarts the TTL of a ticket. NotFound; Conflict: it has ended, or has no TTL.
func (c *Client) Renew(ctx context.Context, id int64) (Ticket, error) {
	return ask[Ticket](ctx, c, call{method: http.MethodPost, path: ticketPath(id) + "/renew", query: c.limited(nil),
		patience: c.patience})
}

// Tickets lists tickets, the oldest first. Only admins may select a project.
func (c *Client) Tickets(ctx context.Context, of Selection) (Tickets, error) {
	query := c.limited(url.Values{"all": {strconv.FormatBool(of.All)}, "limit": {strconv.Itoa(of.Limit)}})
	if of.Project != "" {
		query.Set("project", of.Project)
	}
	return ask[Tickets](ctx, c, call{method: http.MethodGet, path: "/v1/tickets", query: query, patience: c.patience})
}

// Pools lists the pools in the order of their file.
func (c *Client) Pools(ctx context.Context) ([]Pool, error) {
	return ask[[]Pool](ctx, c, call{method: http.MethodGet, path: "/v1/pools", patience: c.patience})
}

// Pool returns a pool. NotFound.
func (c *Client) Pool(ctx context.Context, name string) (Pool, error) {
	return ask[Pool](ctx, c, call{method: http.MethodGet, path: "/v1/pools/" + url.PathEscape(name),
		patience: c.patience})
}

// Pause stops starts and assignments in a pool. NotFound.
func (c *Client) Pause(ctx context.Context, name string) (Pool, error) {
	return c.change(ctx, name, "pause")
}

// Resume reverses Pause and Drain. NotFound.
func (c *Client) Resume(ctx context.Context, name string) (Pool, error) {
	return c.change(ctx, name, "resume")
}

// Drain pauses a pool and deletes its unassigned resources. NotFound.
func (c *Client) Drain(ctx context.Context, name string) (Pool, error) {
	return c.change(ctx, name, "drain")
}

func (c *Client) change(ctx context.Context, name, verb string) (Pool, error) {
	path := "/v1/pools/" + url.PathEscape(name) + "/" + verb
	return ask[Pool](ctx, c, call{method: http.MethodPost, path: path, patience: c.patience})
}

// Resize changes the size of a pool. Invalid; NotFound; Conflict: the pool is no longer in the file.
func (c *Client) Resize(ctx context.Context, name string, size Size) (Pool, error) {
	return ask[Pool](ctx, c, call{method: http.MethodPatch, path: "/v1/pools/" + url.PathEscape(name), body: size,
		patience: c.patience})
}

// Resources lists resources by number; if pool is not empty, only resources of this pool, and unless all is set, only
// resources that have not ended.
func (c *Client) Resources(ctx context.Context, pool string, all bool) ([]Resource, error) {
	query := url.Values{"pool": {pool}, "all": {strconv.FormatBool(all)}}
	return ask[[]Resource](ctx, c, call{method: http.MethodGet, path: "/v1/resources", query: query,
		patience: c.patience})
}

// Resource returns a resource by its number or name. NotFound.
func (c *Client) Resource(ctx context.Context, idOrName string) (Resource, error) {
	return ask[Resource](ctx, c, call{method: http.MethodGet, path: "/v1/resources/" + url.PathEscape(idOrName),
		patience: c.patience})
}

// Delete requests the deletion of resources by their numbers or names; an open ticket that has one of them fails. which
// selects further resources: none, unused or all. NotFound.
func (c *Client) Delete(ctx context.Context, which string, idsOrNames ...string) (Deletion, error) {
	query := url.Values{"which": {which}, "id": idsOrNames}
	return ask[Deletion](ctx, c, call{method: http.MethodDelete, path: "/v1/resources", query: query,
		patience: c.patience})
}

// Logs returns what a resource's commands printed. NotFound.
func (c *Client) Logs(ctx context.Context, idOrName string) ([]byte, error) {
	return ask[[]byte](ctx, c, call{method: http.MethodGet, path: "/v1/resources/" + url.PathEscape(idOrName) + "/logs",
		patience: c.patience})
}

// ask makes a call and returns its answer.
func ask[T any](ctx context.Context, c *Client, what call) (T, error) {
	var result T
	err := c.ask(ctx, what, &result)
	return result, err
}
