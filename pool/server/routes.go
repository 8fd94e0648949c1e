package server

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"croft"
)

// Handler serves the API and the page; see docs/users/pools-api.md.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /page/", pageFiles)
	mux.HandleFunc("POST /login", s.login)
	mux.HandleFunc("POST /logout", s.logout)
	if s.Page != "" {
		mux.Handle("GET /{$}", http.RedirectHandler(s.Page, http.StatusSeeOther))
	} else {
		mux.Handle("GET /{$}", s.here(s.page))
	}
	mux.Handle("GET /events", s.here(s.events))
	mux.Handle("GET /pools", http.RedirectHandler("/#pools", http.StatusSeeOther))
	mux.Handle("GET /resources", http.RedirectHandler("/#resources", http.StatusSeeOther))
	mux.Handle("GET /api/stats", s.here(s.stats))
	if s.RPC != nil {
		rpc := s.only(RoleClient, s.here(s.RPC(s.tickets()).ServeHTTP))
		mux.Handle("/RPC2", rpc)
		mux.Handle("POST /{$}", rpc)
	}
	s.addAPI(mux)
	return s.metrics.watch(mux, s.guard(mux))
}

func (s *Server) tickets() Tickets { return Tickets{s} }

// guard refuses requests from web pages of other origins.
func (s *Server) guard(next http.Handler) http.Handler {
	foreign := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := foreign.Check(r); err != nil {
			fail(w, croft.Errorf(croft.Invalid, "a web page from elsewhere asks for this: %w", err))
			return
		}
		if s.Local && r.Host != "" && !isLocal(r.Host) { // browsers always send a host; old clients may not
			fail(w,
				croft.Errorf(croft.Invalid,
					"this server answers only its own machine, and %q is not a name of it: use localhost, or give the server tokens", r.Host))
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxRequest)
		next.ServeHTTP(w, r)
	})
}

// maxRequest bounds the body of any request; handlers have lower limits.
const maxRequest = 2 << 20

// isLocal reports whether a request's host is this machine.
func isLocal(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	name = strings.Trim(name, "[]")
	addr, err := netip.ParseAddr(name)
	return err == nil && addr.IsLoopback() || name == "localhost" || strings.HasSuffix(name, ".localhost")
}
