package client

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"slices"
	"strconv"
	"time"

	"croft"
	"croft/control/api"
	"croft/internal/delay"
	pools "croft/pool/api"
)

// Pools has the operations of pools and tickets with the methods of pool/api.Client, the client of a manager of pools.
// It repeats requests while no manager serves the pools, reads all pages of lists, and waits across restarts of the
// manager.
type Pools struct{ *Client }

// Pools lists the pools that the caller may use, in the order of their file.
func (c Pools) Pools(ctx context.Context) ([]pools.Pool, error) {
	list, err := c.ListPools(ctx, api.InProject{})
	return list.Pools, err
}

// Pool returns a pool. NotFound.
func (c Pools) Pool(ctx context.Context, name string) (pools.Pool, error) {
	return c.GetPool(ctx, api.PoolNamed{Name: name})
}

// Resize changes the size of a pool. Invalid; NotFound; Conflict: the pool is no longer in the manager's file.
func (c Pools) Resize(ctx context.Context, name string, size pools.Size) (pools.Pool, error) {
	return again(ctx, poolPatience, func() (pools.Pool, error) {
		return c.ChangePool(ctx, api.PoolChange{PoolNamed: api.PoolNamed{Name: name}, Size: size})
	})
}

// Resources lists resources by number, of one pool if it is named; without all, only resources that have not ended.
func (c Pools) Resources(ctx context.Context, pool string, all bool) ([]pools.Resource, error) {
	names := []string{pool}
	if pool == "" {
		known, err := c.Pools(ctx)
		if err != nil {
			return nil, err
		}
		names = nil
		for _, p := range known {
			names = append(names, p.Name)
		}
	}
	found := []pools.Resource{}
	for _, name := range names {
		list, err := c.ListPoolResources(ctx, api.PoolResources{PoolNamed: api.PoolNamed{Name: name}, All: all})
		// a pool that was removed meanwhile or is unknown has no resources; the manager says the same
		if errors.Is(err, croft.NotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found = append(found, list.Resources...)
	}
	slices.SortFunc(found, func(a, b pools.Resource) int { return int(a.ID - b.ID) })
	return found, nil
}

// Resource returns a resource by its number or name. NotFound.
func (c Pools) Resource(ctx context.Context, idOrName string) (found pools.Resource, err error) {
	all, err := c.Resources(ctx, "", true)
	if err != nil {
		return found, err
	}
	for _, r := range all {
		if strconv.FormatInt(r.ID, 10) == idOrName {
			return r, nil
		}
		if r.Name == idOrName {
			found = r // the last one is the newest
		}
	}
	if found.ID == 0 {
		return found, croft.Errorf(croft.NotFound, "there is no resource %s, or it is not yours", idOrName)
	}
	return found, nil
}

// Logs returns the output of a resource's commands. NotFound.
func (c Pools) Logs(ctx context.Context, idOrName string) ([]byte, error) {
	r, err := c.Resource(ctx, idOrName)
	if err != nil {
		return nil, err
	}
	answer, err := c.request(ctx, "GET /v1/pools/{name}/resources/{resource}/log",
		api.ResourceNamed{PoolNamed: api.PoolNamed{Name: r.Pool}, Resource: strconv.FormatInt(r.ID, 10)})
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	return text, nil
}

// poolPatience is how long requests that may be repeated are repeated while no manager serves the pools; poolPause is
// the pause in between.
const (
	poolPatience = 10 * time.Second
	poolPause    = 500 * time.Millisecond
)

// again repeats a request until it is answered, patience is over or ctx ends. With patience 0, it repeats until ctx
// ends.
func again[T any](ctx context.Context, patience time.Duration, do func() (T, error)) (T, error) {
	for begun := time.Now(); ; {
		result, err := do()
		if !errors.Is(err, croft.Unavailable) || patience > 0 && time.Since(begun) > patience ||
			delay.For(ctx, poolPause) != nil {
			return result, err
		}
	}
}

// Open opens a ticket. The same key returns the same ticket; without a key, it chooses one, so that repeated requests
// open one ticket.
func (c Pools) Open(ctx context.Context, o pools.Opening) (pools.Ticket, error) {
	if o.Key == "" {
		o.Key = rand.Text()
	}
	return again(ctx, poolPatience, func() (pools.Ticket, error) {
		return c.OpenTicket(ctx, api.NewTicket{InProject: api.InProject{Project: croft.Project(o.Project)},
			Tags: append([]string{}, o.Tags...), Sandbox: o.Sandbox, TTL: o.TTL, Key: o.Key})
	})
}

// numbered names a ticket.
func numbered(id int64) api.TicketNamed { return api.TicketNamed{ID: strconv.FormatInt(id, 10)} }

// Ticket returns a ticket, and restarts its lease. NotFound.
func (c Pools) Ticket(ctx context.Context, id int64) (pools.Ticket, error) {
	return again(ctx, poolPatience, func() (pools.Ticket, error) {
		return c.GetTicket(ctx, api.TicketAwaited{TicketNamed: numbered(id)})
	})
}

// waitTurn is how long one request of Wait waits.
const waitTurn = 20 * time.Second

// Wait returns the ticket once it has a resource, has ended, or can never be served. NotFound.
func (c Pools) Wait(ctx context.Context, id int64, w pools.Waiting) (pools.Ticket, error) {
	in := api.TicketAwaited{TicketNamed: numbered(id)} // the first answer comes at once
	for {
		t, err := again(ctx, 0, func() (pools.Ticket, error) { return c.GetTicket(ctx, in) })
		if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = ctx.Err()
		}
		if err != nil || !t.Waiting() || t.Never && !w.Never {
			return t, err
		}
		in.TicketWait = api.TicketWait{Wait: "ready", Timeout: api.Patience(waitTurn)}
		if w.Changed != nil {
			w.Changed(t)
		}
		if t.Never && delay.For(ctx, waitTurn) != nil { // the server answers at once for such a ticket
			return t, ctx.Err()
		}
	}
}

// Close gives a ticket's resource back, or cancels the ticket. Closing twice is no error. NotFound.
func (c Pools) Close(ctx context.Context, id int64) (pools.Ticket, error) {
	return again(ctx, poolPatience, func() (pools.Ticket, error) { return c.CloseTicket(ctx, numbered(id)) })
}

// Renew restarts the lease of a ticket. NotFound. Conflict: the ticket has ended, or has no lease.
func (c Pools) Renew(ctx context.Context, id int64) (pools.Ticket, error) {
	return again(ctx, poolPatience, func() (pools.Ticket, error) { return c.RenewTicket(ctx, numbered(id)) })
}

// Tickets lists tickets, the oldest first.
func (c Pools) Tickets(ctx context.Context, of pools.Selection) (list pools.Tickets, err error) {
	list.Tickets = []pools.Ticket{}
	var counted pages
	for after := ""; ; {
		size := mostEntries
		if of.Limit > 0 {
			size = min(of.Limit-len(list.Tickets), mostEntries)
		}
		page, err := c.ListTickets(ctx, api.TicketFilter{InProject: api.InProject{Project: croft.Project(of.Project)},
			Page: api.Page{Limit: size, After: after}, All: of.All})
		if err != nil {
			return list, err
		}
		list.Tickets = append(list.Tickets, page.Tickets...)
		if err := counted.next(len(page.Tickets), after, page.Next); err != nil {
			return list, err
		}
		if after = page.Next; after == "" || of.Limit > 0 && len(list.Tickets) >= of.Limit {
			break
		}
	}
	slices.Reverse(list.Tickets)
	for _, t := range list.Tickets {
		if t.State == pools.TicketOpen {
			list.Open++
		}
		if t.Waiting() {
			list.Waiting++
		}
	}
	return list, nil
}
