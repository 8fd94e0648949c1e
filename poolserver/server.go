package poolserver

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"croft"
	"croft/internal/xmlrpc"
	"croft/pool"
)

// Config joins a Server to what it needs.
type Config struct {
	Manager *pool.Manager // required
	// Tokens are those who may ask; nil: whoever reaches the server may do everything.
	Tokens *Tokens
	// Local: only this machine is to reach the server, so that a name which leads here
	// from elsewhere is refused. A web page that somebody here looks at could else
	// reach it.
	Local bool
	// Peers is how other servers are reached, http.DefaultTransport by default.
	Peers http.RoundTripper
	Log   *slog.Logger // discards by default
}

// Server answers over HTTP for a manager.
type Server struct {
	Config
	metrics *metrics
	streams chan struct{} // one for each page that is live
}

// maxStreams bounds how many pages are live at once.
const maxStreams = 200

// New checks the config. Invalid.
func New(c Config) (*Server, error) {
	if c.Manager == nil {
		return nil, croft.Errorf(croft.Invalid, "poolserver: Manager is required")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Peers == nil {
		c.Peers = http.DefaultTransport
	}
	s := &Server{Config: c, streams: make(chan struct{}, maxStreams)}
	s.metrics = newMetrics(s)
	return s, nil
}

// Handler answers requests; see docs/pools-api.md.
func (s *Server) Handler() http.Handler {
	rpc := s.xmlrpc()
	mux := http.NewServeMux()
	mux.Handle("GET /page/", pageFiles)
	mux.HandleFunc("POST /login", s.login)
	mux.HandleFunc("POST /logout", s.logout)
	mux.Handle("GET /{$}", s.here(s.page))
	mux.Handle("GET /events", s.here(s.events))
	mux.Handle("GET /pools", http.RedirectHandler("/#pools", http.StatusSeeOther))
	mux.Handle("GET /resources", http.RedirectHandler("/#resources", http.StatusSeeOther))
	mux.Handle("GET /api/stats", s.here(s.stats))
	mux.Handle("/RPC2", s.only(RoleClient, s.here(rpc.ServeHTTP)))
	mux.Handle("POST /{$}", s.only(RoleClient, s.here(rpc.ServeHTTP)))
	s.addAPI(mux)
	return s.metrics.watch(mux, s.guard(mux))
}

// guard refuses what a web page of somebody else has a browser ask.
func (s *Server) guard(next http.Handler) http.Handler {
	foreign := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := foreign.Check(r); err != nil {
			fail(w, croft.Errorf(croft.Invalid, "a web page from elsewhere asks for this: %w", err))
			return
		}
		if s.Local && !isLocal(r.Host) {
			fail(w, croft.Errorf(croft.Invalid, "this server is for its own machine, and %q is no name of that: ask localhost, or give the server tokens", r.Host))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Ready returns nil where requests are answered: here, or by the server that acts.
func (s *Server) Ready() error {
	if leader, here := s.Manager.Leader(); !here && !s.isOther(leader) {
		return errors.New("no server acts for the pools; one does within seconds, if etcd answers")
	}
	return nil
}

// Collector is for /metrics.
func (s *Server) Collector() prometheus.Collector { return s.metrics }

// xmlrpc are the methods that resalloc's clients call. Numbers may come as strings.
func (s *Server) xmlrpc() *xmlrpc.Handler {
	return xmlrpc.NewHandler(map[string]xmlrpc.Method{
		"takeTicket":    {Help: "takeTicket(tags[, sandbox]) opens a ticket for a resource that has all of these tags, and returns its number.", Call: s.takeTicket},
		"collectTicket": {Help: "collectTicket(id) tells {ready, output, closed, failed} of a ticket; ready is nil where there is none.", Call: s.collectTicket},
		"waitTicket":    {Help: "waitTicket(id) returns the output of the ticket's resource as soon as it has one.", Call: s.waitTicket},
		"closeTicket":   {Help: "closeTicket(id) gives the ticket back.", Call: s.closeTicket},
	})
}

func (s *Server) takeTicket(ctx context.Context, params []any) (any, error) {
	if len(params) < 1 || len(params) > 2 {
		return nil, errors.New("takeTicket takes a list of tags and, if need be, a sandbox")
	}
	var o pool.Opening
	tags, ok := params[0].([]any)
	for _, tag := range tags {
		text, is := tag.(string)
		ok = ok && is
		o.Tags = append(o.Tags, text)
	}
	if !ok {
		return nil, errors.New("takeTicket takes a list of tags, and what came is none")
	}
	if len(params) == 2 && params[1] != nil {
		if o.Sandbox, ok = params[1].(string); !ok {
			return nil, errors.New("takeTicket takes a sandbox by its name")
		}
	}
	t, err := s.Manager.Open(ctx, o)
	return int64(t.ID), err
}

// ticketParam is the number that is the only parameter of a method.
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

func (s *Server) collectTicket(ctx context.Context, params []any) (any, error) {
	id, err := ticketParam(params)
	if err != nil {
		return nil, err
	}
	answer := map[string]any{"ready": nil, "output": nil, "closed": nil, "failed": nil}
	t, err := s.Manager.Get(ctx, id)
	if errors.Is(err, croft.NotFound) {
		return answer, nil
	}
	if err != nil {
		return nil, err
	}
	answer["ready"], answer["closed"], answer["failed"] = t.Resource != 0, t.State == pool.TicketClosed, t.State == pool.TicketFailed
	if t.Resource != 0 {
		answer["output"] = data(t)
	}
	return answer, nil
}

// data is what a ticket's resource hands out; empty where it is forgotten.
func data(t pool.TicketStatus) []byte {
	if t.Has == nil {
		return []byte{}
	}
	return t.Has.Data
}

func (s *Server) waitTicket(ctx context.Context, params []any) (any, error) {
	id, err := ticketParam(params)
	if err != nil {
		return nil, err
	}
	t, err := s.Manager.Wait(ctx, id)
	if ctx.Err() != nil {
		return nil, errors.New("this server stops; ask again")
	}
	if err == nil && t.Resource == 0 {
		err = croft.Errorf(croft.Conflict, "ticket %d was closed before it had a resource", id)
	}
	return data(t), err
}

func (s *Server) closeTicket(ctx context.Context, params []any) (any, error) {
	id, err := ticketParam(params)
	if err != nil {
		return nil, err
	}
	return nil, s.Manager.Close(ctx, id)
}

// leaderPatience is how long a request waits for a server that acts, while one takes
// over from another.
const leaderPatience = 10 * time.Second
