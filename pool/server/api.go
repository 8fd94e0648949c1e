package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"time"

	"croft"
	"croft/internal/httpapi"
	"croft/pool"
	"croft/pool/api"
)

// maxBody bounds the body of a request, maxWait its wait for a ticket.
const (
	maxBody = 64 << 10
	maxWait = 2 * time.Minute
)

// addAPI adds the JSON API.
func (s *Server) addAPI(mux *http.ServeMux) {
	client := func(pattern string, do func(*http.Request) (any, error)) {
		mux.HandleFunc(pattern, s.only(RoleClient, s.here(documented(do))))
	}
	ticket := func(pattern string, do func(*http.Request) (any, error)) {
		mux.HandleFunc(pattern, s.only(RoleClient, within(s.here(documented(do)))))
	}
	admin := func(pattern string, do func(*http.Request) (any, error)) {
		mux.HandleFunc(pattern, s.only(RoleAdmin, s.here(documented(do))))
	}
	mux.HandleFunc("POST /v1/tickets", s.only(RoleClient, s.here(s.openTicket)))
	ticket("GET /v1/tickets", s.listTickets)
	ticket("GET /v1/tickets/{id}", s.showTicket)
	ticket("DELETE /v1/tickets/{id}", s.endTicket)
	ticket("POST /v1/tickets/{id}/renew", s.renewTicket)
	client("GET /v1/pools", s.listPools)
	client("GET /v1/pools/{name}", s.showPool)
	mux.HandleFunc("PATCH /v1/pools/{name}", s.only(RoleAdmin, s.here(s.resizePool)))
	admin("POST /v1/pools/{name}/pause", s.changePool(s.Manager.Pause))
	admin("POST /v1/pools/{name}/resume", s.changePool(s.Manager.Resume))
	admin("POST /v1/pools/{name}/drain", s.changePool(s.Manager.Drain))
	client("GET /v1/resources", s.listResources)
	client("GET /v1/resources/{resource}", s.showResource)
	admin("DELETE /v1/resources", s.deleteResources)
	mux.HandleFunc("GET /v1/resources/{resource}/logs", s.only(RoleAdmin, s.here(s.logs)))
	mux.HandleFunc("/v1/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, croft.Errorf(croft.NotFound, "there is no %s %s in this API", r.Method, r.URL.Path))
	})
}

// documented makes a handler that sends the result of do.
func documented(do func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		document, err := do(r)
		answer(w, document, err)
	}
}

// answer sends a document, or the error if there is one.
func answer(w http.ResponseWriter, document any, err error) {
	if err != nil {
		fail(w, err)
		return
	}
	httpapi.Answer(w, http.StatusOK, document)
}

// read decodes the body of a request; an empty one leaves into unchanged. Invalid.
func read(w http.ResponseWriter, r *http.Request, into any) error {
	text, err := httpapi.ReadBody(w, r, maxBody, 0)
	if err != nil || len(text) == 0 {
		return err
	}
	err = json.Unmarshal(text, into)
	if is, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return croft.Errorf(croft.Invalid, "the request is not a document of this API: %s cannot be a JSON %s",
			cmp.Or(is.Field, "it"), is.Value)
	}
	if err != nil {
		return croft.Errorf(croft.Invalid, "the request is not a document of this API: %w", err)
	}
	return nil
}

func (s *Server) openTicket(w http.ResponseWriter, r *http.Request) {
	var o api.Opening
	if err := read(w, r, &o); err != nil {
		fail(w, err)
		return
	}
	t, err := s.tickets().Open(r.Context(), pool.Opening{Tags: o.Tags, Sandbox: o.Sandbox, TTL: time.Duration(o.TTL),
		Key: o.Key, Project: croft.Project(o.Project), ProjectID: croft.ProjectID(o.ProjectID)})
	answer(w, s.ticketFor(r.Context(), t), err)
}

// listTickets lists the newest tickets of the caller.
func (s *Server) listTickets(r *http.Request) (any, error) {
	past, err := flag(r, "all")
	if err != nil {
		return nil, err
	}
	limit, err := strconv.Atoi(cmp.Or(r.FormValue("limit"), "0"))
	if err != nil || limit < 0 {
		return nil, croft.Errorf(croft.Invalid, "limit is %.20q: use a number from 0 on", r.FormValue("limit"))
	}
	all, err := s.Manager.Tickets(past)
	if err != nil {
		return nil, err
	}
	list := api.Tickets{Tickets: []api.Ticket{}}
	all = slices.DeleteFunc(all, func(t pool.TicketStatus) bool { return !owns(r.Context(), t.Ticket) })
	for _, t := range all {
		if t.State == pool.TicketOpen {
			list.Open++
		}
		if t.Waiting() {
			list.Waiting++
		}
	}
	if limit > 0 && len(all) > limit {
		all = all[len(all)-limit:]
	}
	for _, t := range all {
		list.Tickets = append(list.Tickets, s.ticketFor(r.Context(), t))
	}
	return list, nil
}

// ticketFor returns a ticket as the caller may see it: the output of failed commands is only for admins.
func (s *Server) ticketFor(ctx context.Context, t pool.TicketStatus) api.Ticket {
	shown := ticket(t)
	if shown.WaitsFor == "" || callerOf(ctx).may(RoleAdmin) {
		return shown
	}
	pools, err := s.Manager.Pools()
	if err != nil {
		shown.WaitsFor = "" // this server no longer leads
		return shown
	}
	shown.WaitsFor = withoutOutput(shown.WaitsFor, pools)
	return shown
}

func flag(r *http.Request, name string) (bool, error) {
	value, err := strconv.ParseBool(cmp.Or(r.FormValue(name), "false"))
	if err != nil {
		return false, croft.Errorf(croft.Invalid, "%s is %.20q: use true or false", name, r.FormValue(name))
	}
	return value, nil
}

// ticketOf returns the ticket that a request names. NotFound: it does not exist, or another client owns it.
func (s *Server) ticketOf(r *http.Request) (pool.TicketID, error) {
	id, err := pool.ParseTicketID(r.PathValue("id"))
	if err == nil {
		err = s.tickets().owned(r.Context(), id)
	}
	return id, err
}

// showTicket answers at once or, with wait, once the ticket has a resource, has ended or can never be served by
// the pools as configured.
func (s *Server) showTicket(r *http.Request) (any, error) {
	id, err := s.ticketOf(r)
	if err != nil {
		return nil, err
	}
	patience, err := time.ParseDuration(cmp.Or(r.FormValue("wait"), "0s"))
	if err != nil || patience < 0 {
		return nil, croft.Errorf(croft.Invalid, "wait is %.20q: use a duration such as 30s", r.FormValue("wait"))
	}
	even, err := flag(r, "never")
	if err != nil {
		return nil, err
	}
	t, err := s.Manager.Get(r.Context(), id)
	if err != nil || patience == 0 || !t.Waiting() || t.Never && !even {
		return s.ticketFor(r.Context(), t), err
	}
	return s.waitFor(r.Context(), id, min(patience, maxWait))
}

func (s *Server) waitFor(ctx context.Context, id pool.TicketID, patience time.Duration) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	t, err := s.Manager.Wait(ctx, id)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t, err = s.Manager.Peek(id)
	} else if ctx.Err() != nil {
		err = croft.Errorf(croft.Unavailable, "this server stops; ask again")
	}
	return s.ticketFor(ctx, t), err
}

func (s *Server) endTicket(r *http.Request) (any, error) {
	id, err := s.ticketOf(r)
	if err == nil {
		err = s.Manager.Close(r.Context(), id)
	}
	// the ticket ended long ago, and its owner is unknown
	if s.Manager.Forgotten(id) && projectsOf(r.Context()) == nil {
		return api.Ticket{ID: int64(id), State: api.TicketClosed, Tags: []string{}}, nil
	}
	if err != nil {
		return nil, err
	}
	t, err := s.Manager.Peek(id)
	return s.ticketFor(r.Context(), t), err
}

func (s *Server) renewTicket(r *http.Request) (any, error) {
	id, err := s.ticketOf(r)
	if err != nil {
		return nil, err
	}
	t, err := s.Manager.Renew(r.Context(), id)
	return s.ticketFor(r.Context(), t), err
}

func (s *Server) listPools(r *http.Request) (any, error) {
	all, err := s.Manager.Pools()
	list := []api.Pool{}
	for _, p := range all {
		list = append(list, poolFor(p, callerOf(r.Context())))
	}
	return list, err
}

// poolFor returns a pool as the caller may see it: the output of failed commands is only for admins.
func poolFor(p pool.PoolStatus, c caller) api.Pool {
	shown := poolStatus(p)
	if !c.may(RoleAdmin) {
		hideErrors(&shown, &p.Settings)
	}
	return shown
}

func (s *Server) findPool(name string) (pool.PoolStatus, error) {
	all, err := s.Manager.Pools()
	if err != nil {
		return pool.PoolStatus{}, err
	}
	i := slices.IndexFunc(all, func(p pool.PoolStatus) bool { return string(p.Name()) == name })
	if i < 0 {
		return pool.PoolStatus{}, croft.Errorf(croft.NotFound, "there is no pool %s", name)
	}
	return all[i], nil
}

func (s *Server) showPool(r *http.Request) (any, error) {
	p, err := s.findPool(r.PathValue("name"))
	return poolFor(p, callerOf(r.Context())), err
}

func (s *Server) changePool(change func(context.Context, pool.Name) error) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		if err := change(r.Context(), pool.Name(r.PathValue("name"))); err != nil {
			return nil, err
		}
		return s.showPool(r)
	}
}

// resizePool changes the size of a pool.
func (s *Server) resizePool(w http.ResponseWriter, r *http.Request) {
	var size api.Size
	err := read(w, r, &size)
	if err == nil {
		err = s.Manager.Resize(r.Context(), pool.Name(r.PathValue("name")),
			pool.Size{Max: change(size.Max), MaxPrealloc: change(size.MaxPrealloc)})
	}
	if err != nil {
		fail(w, err)
		return
	}
	shown, err := s.showPool(r)
	answer(w, shown, err)
}

func change(c api.Change) pool.Change {
	return pool.Change{To: c.To, Given: c.Given, Reset: c.Reset}
}

func (s *Server) listResources(r *http.Request) (any, error) {
	past, err := flag(r, "all")
	if err != nil {
		return nil, err
	}
	all, err := s.Manager.Resources(past)
	list := []api.Resource{}
	of := r.FormValue("pool")
	for _, one := range all {
		if of == "" || of == string(one.Pool) {
			list = append(list, *resourceFor(one, callerOf(r.Context())))
		}
	}
	return list, err
}

func (s *Server) showResource(r *http.Request) (any, error) {
	one, err := s.Manager.Resource(r.PathValue("resource"))
	return resourceFor(one, callerOf(r.Context())), err
}

// deleteResources deletes the named resources and, depending on which, all others that are up, or only the
// unassigned ones.
func (s *Server) deleteResources(r *http.Request) (any, error) {
	which := cmp.Or(r.FormValue("which"), "none")
	if !slices.Contains([]string{"none", "unused", "all"}, which) {
		return nil, croft.Errorf(croft.Invalid, "which is %.20q: use none, unused or all", which)
	}
	var ids []pool.ResourceID
	for _, name := range r.Form["id"] {
		one, err := s.Manager.Resource(name)
		if err != nil {
			return nil, err
		}
		ids = append(ids, one.ID)
	}
	all, err := s.Manager.Resources(false)
	if err != nil {
		return nil, err
	}
	for _, one := range all {
		if which == "all" && one.State == pool.Up || which == "unused" && one.Idle() {
			ids = append(ids, one.ID)
		}
	}
	result := api.Deletion{Deleted: []int64{}}
	for _, id := range ids {
		result.Deleted = append(result.Deleted, int64(id))
	}
	return result, s.Manager.DeleteResources(r.Context(), ids...)
}

// logs sends the output of a resource's commands.
func (s *Server) logs(w http.ResponseWriter, r *http.Request) {
	one, err := s.Manager.Resource(r.PathValue("resource"))
	if err != nil {
		fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	for _, name := range s.Manager.Logs(one.ID) {
		if err := copyLog(w, name); err != nil {
			s.Log.Warn("a log was not sent whole", "file", name, "err", err)
			return
		}
	}
}

func copyLog(w io.Writer, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	fmt.Fprintf(w, "==> %s <==\n", name)
	_, err = io.Copy(w, f)
	return err
}

// stats sends the statistics of the pools in the form of resalloc's web interface.
func (s *Server) stats(w http.ResponseWriter, _ *http.Request) {
	all, err := s.Manager.Pools()
	if err != nil {
		fail(w, err)
		return
	}
	stats := map[string]any{}
	for _, p := range all {
		stats[string(p.Name())] = statsOf(p.Stats)
	}
	httpapi.Answer(w, http.StatusOK, stats)
}

// resallocStats are the statistics of a pool with the types of resalloc: times are seconds since 1970, and values that
// are unknown before the first start are null.
type resallocStats struct {
	Attempted   *float64 `json:"last_attempt_to_start"`
	Succeeded   *float64 `json:"last_successful_start"`
	SuccessRate *float64 `json:"startup_success_rate"`
	StartTime   *float64 `json:"startup_time_avg"`
	Starts      int64    `json:"starts"`
	Failures    int64    `json:"failures"`
	Served      int64    `json:"served"`
}

func statsOf(s pool.Stats) resallocStats {
	shown := resallocStats{Attempted: epoch(s.Attempted), Succeeded: epoch(s.Succeeded), Starts: s.Starts,
		Failures: s.Failures, Served: s.Served}
	if !s.Attempted.IsZero() {
		shown.SuccessRate = &s.SuccessRate
	}
	if !s.Succeeded.IsZero() {
		took := s.StartTime.Seconds()
		shown.StartTime = &took
	}
	return shown
}

// epoch returns a time as seconds since 1970; nil: the time is zero.
func epoch(t time.Time) *float64 {
	if t.IsZero() {
		return nil
	}
	seconds := float64(t.UnixMicro()) / 1e6
	return &seconds
}
