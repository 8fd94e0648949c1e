package server

import (
	"context"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"croft"
	"croft/pool"
)

// handedOn marks a forwarded request. A standby answers a marked request with an error, so that no request circulates.
const handedOn = "X-Croft-Handed-On"

// here calls next if this server leads; else it forwards the request to the leader, as soon as there is one.
func (s *Server) here(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		leader, acting := s.leader(r.Context(), r.Header.Get(handedOn) == "")
		if acting {
			next(w, r)
			return
		}
		to, err := url.Parse(leaderAddress(leader))
		if err != nil || to.Host == "" || !s.isOther(leader) || r.Header.Get(handedOn) != "" {
			fail(w, &pool.StandbyError{Leader: leader})
			return
		}
		s.handOn(w, r, to)
	}
}

func leaderAddress(leader *pool.Server) string {
	if leader == nil {
		return ""
	}
	return leader.Address
}

// leader returns the server that leads, and whether it is this one. With wait, it waits up to leaderPatience if no
// server leads, or if this server is about to lead.
func (s *Server) leader(ctx context.Context, wait bool) (leader *pool.Server, here bool) {
	if leader, here = s.Manager.Leader(); here || s.isOther(leader) || !wait {
		return leader, here
	}
	ctx, cancel := context.WithTimeout(ctx, leaderPatience)
	defer cancel()
	s.Manager.WatchLeader(ctx, func(l *pool.Server, h bool) {
		if leader, here = l, h; h || s.isOther(l) {
			cancel()
		}
	})
	return leader, here
}

// isOther reports whether another server leads.
func (s *Server) isOther(leader *pool.Server) bool {
	return leader != nil && *leader != s.Manager.Me
}

// handOn forwards a request to another server.
func (s *Server) handOn(w http.ResponseWriter, r *http.Request, to *url.URL) {
	proxy := httputil.ReverseProxy{
		Transport:     s.Peers,
		FlushInterval: -1,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(to)
			p.Out.Header.Set(handedOn, "1")
			for _, judged := range []string{"Origin", "Sec-Fetch-Site"} { // already checked by this server
				p.Out.Header.Del(judged)
			}
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			fail(w, croft.Errorf(croft.Unavailable, "the server that acts for the pools, %s, does not answer: %w", to,
				err))
		},
	}
	proxy.ServeHTTP(w, r)
}

// leaderPatience is how long a request waits for a leader, as during a takeover.
const leaderPatience = 10 * time.Second
