package gate

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"croft"
	"croft/compute"
	"croft/internal/httpapi"
)

// ServerConfig configures a Server. All fields are required.
type ServerConfig struct {
	// Caller returns the host whose agent makes a request, by its certificate; an error if none exists, or if the host
	// was forgotten. It is called repeatedly during a stream.
	Caller func(*http.Request) (croft.HostID, error)

	Orders    compute.Orders
	Registry  compute.Registry
	Records   compute.Records
	Volumes   compute.Volumes
	Backups   compute.Backups
	Images    compute.Copies
	Inventory compute.Inventory
	Usable    func(context.Context) error             // why nothing can be ordered now
	Gates     func(context.Context) ([]string, error) // HOST:PORT of all gates of this cloud

	Log *slog.Logger
}

// Server serves agents. It needs HTTP/2 and a BaseContext that ends before the server does, since streams end only with
// their context.
type Server struct {
	ServerConfig

	serving sync.WaitGroup
	allowed allowances
}

// NewServer checks the configuration. It starts nothing.
func NewServer(c ServerConfig) (*Server, error) {
	if c.Caller == nil || c.Orders == nil || c.Registry == nil || c.Records == nil ||
		c.Volumes == nil || c.Backups == nil || c.Images == nil || c.Inventory == nil ||

		c.Usable == nil || c.Gates == nil || c.Log == nil {
		return nil, croft.Errorf(croft.Invalid, "gate: all of the server's configuration is required")
	}
	return &Server{ServerConfig: c}, nil
}

// A method is a row of the policy.
type method struct {
	allows string // what a host may do with it, for people
	serve  func(s *Server, v visit) error
}

// none is an empty question or answer.
type none struct{}

// call makes a method with one question and one answer.
func call[Q, A any](allows string, do func(s *Server, ctx context.Context, caller croft.HostID, q Q) (A,
	error)) method {
	return method{allows, func(s *Server, v visit) error {
		leave, err := v.allowance.enter(v.request.Context())
		if err != nil {
			return err
		}
		defer leave()
		ctx, cancel := context.WithTimeout(v.request.Context(), callTime)
		defer cancel()
		var q Q
		if err := v.read(ctx, &q); err != nil {
			return err
		}
		answer, err := do(s, ctx, v.caller, q)
		if err != nil {
			return err
		}
		v.writer.Header().Set("Content-Type", "application/json")
		_, _ = v.writer.Write(encode(answer)) // a client that misses the answer asks again
		return nil
	}}
}

// stream makes a method that answers with a stream.
func stream(allows string, serve func(s *Server, v visit) error) method {
	return method{allows, func(s *Server, v visit) error {
		leave, err := v.allowance.follow(v.request.Context())
		if err != nil {
			return err
		}
		defer leave()
		return serve(s, v)
	}}
}

// visit is one request of a known host.
type visit struct {
	writer    http.ResponseWriter
	request   *http.Request
	caller    croft.HostID
	allowance *allowance
}

const (
	callTime = 15 * time.Second // of one call, including reading it
	maxBody  = 256 << 10        // of its question
)

// read reads the question of a call, charges its host for it, and cleans the texts in it.
func (v visit) read(ctx context.Context, q any) error {
	text, err := httpapi.ReadBody(v.writer, v.request, maxBody, callTime)
	if err != nil {
		return err
	}
	if err := v.allowance.pay(ctx, len(text)); err != nil {
		return err
	}
	if err := json.Unmarshal(text, q); err != nil {
		return croft.Errorf(croft.Invalid, "the question is not what this method takes: %w", err)
	}
	cleanTexts(q)
	return nil
}

// Wait returns when all requests have been served, after the last one was accepted. A request may outlive its
// connection while it releases what it held.
func (s *Server) Wait() { s.serving.Wait() }

// ServeHTTP serves the paths below Prefix.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.serving.Add(1)
	defer s.serving.Done()
	caller, err := s.Caller(r)
	if err != nil {
		if croft.KindOf(err) != croft.Unavailable { // else it is unknown whether the host may call
			err = refuse("%v", err)
		}
		w.Header().Set("Connection", "close") // the next connection shows the current certificate
		s.fail(w, r, caller, err)
		return
	}
	m := policy[strings.TrimPrefix(r.URL.Path, Prefix)]
	switch {
	case m.serve == nil:
		err = refuse("hosts may not call %q", r.URL.Path)
	case r.Method != http.MethodPost:
		err = croft.Errorf(croft.Invalid, "this method is called by POST")
	default:
		err = m.serve(s, visit{w, r, caller, s.allowed.of(caller)})
	}
	if err != nil && r.Context().Err() == nil {
		s.fail(w, r, caller, err)
	}
}

// fail answers with an error. Faults behind the gate are logged here and not shown to hosts. Requests for objects of
// other hosts are logged too, at a limited rate.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, caller croft.HostID, err error) {
	f := failure{Kind: croft.KindOf(err), Error: err.Error()}
	switch {
	case errors.Is(err, ErrRefused):
		f.Kind, f.Error = "", strings.TrimPrefix(f.Error, ErrRefused.Error()+": ")
		s.allowed.of(caller).complain(func() {
			s.Log.Warn("a host requested what is not its own; further refusals of this kind are not logged for a "+
				"minute", "host",
				caller, "op", clean(r.URL.Path), "err", err, "from", r.RemoteAddr)
		})
	case errors.Is(err, errCrowded):
		f.Kind = croft.Unavailable
	case f.Kind == "" || f.Kind == croft.Unavailable:
		s.Log.Warn("a host's call could not be served", "host", caller, "op", clean(r.URL.Path), "err", err)
		f.Error = "the control process cannot do that just now; its log says why"
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status(err))
	_, _ = w.Write(encode(f))
}
