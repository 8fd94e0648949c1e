package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"croft"
	"croft/internal/connlimit"
	"croft/internal/httpapi"
	"croft/pool/api"
	"croft/tenant"
)

// cookie is the name of the cookie in which a browser keeps a token.
const cookie = "croft_pool_token"

// who returns the sender of a request, which is an admin if the server has no tokens. unknown: the server does not know
// the request's token.
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
	return caller{name: g.Name, role: g.Role, quota: g.Quota}, false
}

// shown returns the token of a request: a bearer token, or the password of basic authentication. A token in a cookie is
// valid only for reading.
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

// only authorizes requests of senders with the rights of a role.
func (s *Server) only(role Role, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, unknown := s.who(r)
		switch {
		case unknown:
			refuse(w, http.StatusUnauthorized, "this server does not know the token")
		case c.role == "":
			refuse(w, http.StatusUnauthorized, "this server wants a token: set CROFT_POOL_TOKEN, or pool.token_file "+
				"in schedule.yaml; croft token create --for pool makes one")
		case !c.may(role):
			refuse(w, http.StatusForbidden, "the token "+c.name+" is a client's, and this is for admins")
		default:
			if s.Tokens != nil {
				connlimit.Prove(r.Context())
			}
			if fault := s.Manager.Fault(); fault != nil {
				w.Header().Set(api.WarningHeader, strconv.QuoteToASCII(warning(c, fault)))
			}
			next(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, c)))
		}
	}
}

// warning says that the file of pools has a fault. Only admins may read from the file.
func warning(c caller, fault error) string {
	if !c.may(RoleAdmin) {
		return "the file of pools has a fault, so the pools stay as they were: tell the operator of the pools"
	}
	return fmt.Sprintf("the pools stay as they were, because their file has a fault: %v; correct the file, which is read "+
		"again when it changes", fault)
}

// within limits a request of an admin to the tickets of the projects that its query names, if it names any. An empty
// name stands for tickets without a project. project_id gives the identity of each project, in the same order; without
// it, as in requests of croft 1.7, tickets are selected by name.
func within(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		projects, named := r.URL.Query()["project"]
		c := callerOf(r.Context())
		switch {
		case !named:
			next(w, r)
		case !c.may(RoleAdmin):
			refuse(w, http.StatusForbidden, "the token "+c.name+" is a client's, and only admins name projects")
		default:
			chosen, err := chosenProjects(projects, r.URL.Query()["project_id"])
			if err != nil {
				fail(w, err)
				return
			}
			next(w, r.WithContext(context.WithValue(r.Context(), withinKey{}, chosen)))
		}
	}
}

// chosenProjects pairs names with identities. Without identities, projects are selected by name. Invalid.
func chosenProjects(names, ids []string) ([]chosenProject, error) {
	if ids != nil && len(ids) != len(names) {
		return nil, croft.Errorf(croft.Invalid, "the query has %d projects and %d identities: send one for each",
			len(names), len(ids))
	}
	all := []chosenProject{}
	for i, name := range names {
		one := chosenProject{name: croft.Project(name), byName: ids == nil}
		if ids != nil {
			one.id = croft.ProjectID(ids[i])
		}
		all = append(all, one)
	}
	return all, nil
}

// refuse answers a request that its token does not permit.
func refuse(w http.ResponseWriter, status int, sentence string) {
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="pools"`)
	}
	httpapi.Answer(w, status, api.Failure{Error: sentence, Kind: string(croft.Denied)})
}

// fail sends an error with the HTTP status of its kind.
func fail(w http.ResponseWriter, err error) {
	if croft.KindOf(err) == "" && errors.Is(err, croft.Unavailable) { // an error with its own type
		err = croft.Errorf(croft.Unavailable, "%w", err)
	}
	status := croft.HTTPStatus(err)
	if errors.Is(err, errTooFast) || croft.KindOf(err) == croft.NoCapacity {
		status = http.StatusTooManyRequests
	}
	if status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	failure := api.Failure{Error: err.Error(), Kind: string(croft.KindOf(err))}
	if r, ok := errors.AsType[*tenant.Refusal](err); ok {
		failure.Refusal = &api.Refusal{Resource: string(r.Measure), Limit: r.Limit, Used: r.Used,
			Requested: r.Requested, Project: string(r.Project), Of: string(r.Of)}
	}
	httpapi.Answer(w, status, failure)
}
