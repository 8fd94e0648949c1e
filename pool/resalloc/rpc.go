package resalloc

import (
	"context"
	"errors"
	"net/http"

	"croft"
	"croft/pool"
	"croft/pool/resalloc/xmlrpc"
	"croft/pool/server"
)

// rpc serves the methods that resalloc's clients call. Numbers may come as strings.
type rpc struct{ server.Tickets }

// Handler is a server.RPC: the methods of resalloc's server, over XML-RPC.
func Handler(t server.Tickets) http.Handler {
	s := rpc{t}
	return xmlrpc.NewHandler(map[string]xmlrpc.Method{
		"takeTicket": {
			Help: "takeTicket(tags[, sandbox]) opens a ticket for a resource that has all of these tags, and returns its number.",
			Call: s.takeTicket,
		},
		"collectTicket": {
			Help: "collectTicket(id) tells {ready, output, closed, failed} of a ticket; ready is nil where there is none.",
			Call: s.collectTicket,
		},
		"waitTicket": {
			Help: "waitTicket(id) returns the output of the ticket's resource as soon as it has one.",
			Call: s.waitTicket,
		},
		"closeTicket": {
			Help: "closeTicket(id) gives the ticket back.",
			Call: s.closeTicket,
		},
	})
}

func (s rpc) takeTicket(ctx context.Context, params []any) (any, error) {
	if len(params) > 2 {
		return nil, errors.New("takeTicket takes a list of tags and, if need be, a sandbox")
	}
	params = append(params, nil, nil) // omitted parameters are nil
	var o pool.Opening
	tags, ok := params[0].([]any)
	ok = ok || params[0] == nil
	for _, tag := range tags {
		text, is := tag.(string)
		ok = ok && is
		o.Tags = append(o.Tags, text)
	}
	if !ok {
		return nil, errors.New("takeTicket takes a list of tags, and the argument is not a list")
	}
	if params[1] != nil {
		if o.Sandbox, ok = params[1].(string); !ok {
			return nil, errors.New("takeTicket takes a sandbox by its name")
		}
	}
	t, err := s.Open(ctx, o)
	return int64(t.ID), err
}

// ticketParam returns the only parameter of a method, the number of a ticket.
func ticketParam(params []any) (pool.TicketID, error) {
	if len(params) == 1 {
		switch v := params[0].(type) {
		case int64:
			return pool.TicketID(v), nil
		case string:
			return pool.ParseTicketID(v)
		}
	}
	return 0, errors.New("the method takes the number of one ticket")
}

func (s rpc) collectTicket(ctx context.Context, params []any) (any, error) {
	var t pool.TicketStatus
	id, err := ticketParam(params)
	if err == nil {
		t, err = s.Get(ctx, id)
	}
	answer := map[string]any{"ready": nil, "output": nil, "closed": nil, "failed": nil}
	// a word that is not a number is an unknown ticket
	if errors.Is(err, croft.NotFound) || errors.Is(err, croft.Invalid) {
		return answer, nil
	}
	if err != nil {
		return nil, err
	}
	answer["ready"] = t.Resource != 0
	answer["closed"], answer["failed"] = t.State == pool.TicketClosed, t.State == pool.TicketFailed
	if t.Resource != 0 {
		answer["output"] = data(t)
	}
	return answer, nil
}

// data returns the data of a ticket's resource; empty: the resource is forgotten.
func data(t pool.TicketStatus) []byte {
	if t.Has == nil {
		return []byte{}
	}
	return t.Has.Data
}

func (s rpc) waitTicket(ctx context.Context, params []any) (any, error) {
	id, err := ticketParam(params)
	if err != nil {
		return nil, err
	}
	t, err := s.Wait(ctx, id)
	if ctx.Err() != nil {
		return nil, errors.New("this server stops; ask again")
	}
	if err == nil && t.Resource == 0 {
		err = croft.Errorf(croft.Conflict, "ticket %d was closed before it had a resource", id)
	}
	return data(t), err
}

func (s rpc) closeTicket(ctx context.Context, params []any) (any, error) {
	id, err := ticketParam(params)
	if err == nil {
		err = s.Close(ctx, id)
	}
	return nil, err
}
