package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"

	"croft"
	"croft/internal/connlimit"
	"croft/internal/httpapi"
	"croft/pool"
	"croft/pool/api"
)

// caller is the sender of a request.
type caller struct {
	name  string // of the token; empty for nobody
	role  Role   // empty: may look at what everybody may see
	quota Quota  // of the token
}

// may reports whether the caller has the rights of a role.
func (c caller) may(role Role) bool { return c.role == role || c.role == RoleAdmin }

// cookie is the name of the cookie in which a browser keeps a token.
const cookie = "croft_pool_token"

// who returns the sender of a request: an admin where the server has no tokens. unknown:
// the request has a token that the server does not know.
func (s *Server) who(r *http.Request) (c caller, unknown bool) {
	if s.Tokens == nil {
		return caller{role: RoleAdmin}, false
	}
	token := shown(r)
	if token == "" {
		return caller{}, false
	}
	g, known := s.Tokens.Find(token)
	if !known {
		return caller{}, true
	}
	return caller{g.Name, g.Role, g.Quota}, false
}

// shown returns the token of a request: the bearer's, or a password of basic
// authentication. A token in a cookie counts for reading only.
func shown(r *http.Request) string {
	kind, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(kind, "bearer") {
		return strings.TrimSpace(token)
	}
	if _, password, ok := r.BasicAuth(); ok {
		return password
	}
	if c, err := r.Cookie(cookie); err == nil && r.Method == http.MethodGet {
		return c.Value
	}
	return ""
}

type callerKey struct{}

// callerOf returns the sender of a request that only authorized.
func callerOf(ctx context.Context) caller {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c
}

// only authorizes requests of senders with the rights of a role.
func (s *Server) only(role Role, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, unknown := s.who(r)
		switch {
		case unknown:
			refuse(w, http.StatusUnauthorized, "the token is none that this server knows")
		case c.role == "":
			refuse(w, http.StatusUnauthorized, "this server wants a token: croft pool token create makes one")
		case !c.may(role):
			refuse(w, http.StatusForbidden, "the token "+c.name+" is a client's, and this is for admins")
		default:
			if s.Tokens != nil {
				connlimit.Prove(r.Context())
			}
			next(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, c)))
		}
	}
}

func refuse(w http.ResponseWriter, status int, sentence string) {
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="pools"`)
	}
	httpapi.Answer(w, status, api.Failure{Error: sentence})
}

// fail answers with an error, by its kind.
func fail(w http.ResponseWriter, err error) {
	if croft.KindOf(err) == "" && errors.Is(err, croft.Unavailable) { // of an error with a type of its own
		err = croft.Errorf(croft.Unavailable, "%w", err)
	}
	status := croft.HTTPStatus(err)
	if errors.Is(err, errTooFast) || croft.KindOf(err) == croft.NoCapacity {
		status = http.StatusTooManyRequests
	}
	if status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	httpapi.Answer(w, status, api.Failure{Error: err.Error(), Kind: string(croft.KindOf(err))})
}

// handedOn marks a forwarded request. A server that does not act answers one with an error,
// so that no request circulates.
const handedOn = "X-Croft-Handed-On"

// here calls next where this server acts; else it forwards the request to the one that
// does, as soon as there is one.
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

// leader returns the server that acts, and whether it is this one. With wait it waits a
// while for one where there is none, or where this server is about to act.
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

// isOther reports whether another server acts.
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
			for _, judged := range []string{"Origin", "Sec-Fetch-Site"} { // by this server
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
