package server

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io/fs"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"croft"
	"croft/pool"
	"croft/pool/api"
)

//go:embed page
var pageDir embed.FS

// pageFiles serves the files that the page refers to.
var pageFiles = func() http.Handler {
	files := http.FileServerFS(pageDir)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := fs.Stat(pageDir, strings.TrimPrefix(r.URL.Path, "/")); err != nil ||
			strings.HasSuffix(r.URL.Path, "/") || strings.HasSuffix(r.URL.Path, ".html") {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Cache-Control", "no-cache")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		files.ServeHTTP(w, r)
	})
}()

var pageTemplate = template.Must(template.New("page.html").Funcs(template.FuncMap{
	"since": func(t time.Time) template.HTML {
		if t.IsZero() {
			return "&ndash;"
		}
		at := t.UTC().Format(time.RFC3339)
		// the HTML contains only digits of a time
		return template.HTML(fmt.Sprintf(`<time data-since datetime="%s" title="%s">%s</time>`, at, at, at))
	},
	"took": func(s api.Stats) string {
		if s.Succeeded.IsZero() {
			return "–"
		}
		return short(time.Duration(s.StartTime))
	},
	"rate": func(s api.Stats) string {
		if s.Attempted.IsZero() {
			return "–"
		}
		return fmt.Sprintf("%.0f %%", 100*s.SuccessRate)
	},
}).ParseFS(pageDir, "page/page.html"))

// short prints a duration with about two digits.
func short(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 100*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%.0f min", math.Round(d.Minutes()))
}

// maxRows bounds the rows of each table.
const maxRows = 200

// overview is the data of the page.
type overview struct {
	Now     string
	Tokens  bool   // the server has tokens
	Who     string // name of the request's token
	Refused string // why the token was refused
	Secrets bool   // show details that only admins may see

	Pools         []poolRow
	Totals        api.Stock
	Tickets       []ticketRow
	Open, Waiting int
	MoreTickets   int
	Resources     []resourceRow
	Live          int
	MoreResources int
}

type poolRow struct{ api.Pool }

// Busy counts the resources that are neither ready nor assigned.
func (p poolRow) Busy() int { return p.Starting + p.Releasing + p.DeleteRequest + p.Deleting }

// Width is the width of the bar. A pool may exceed its maximum after that was lowered.
func (p poolRow) Width() int { return max(p.Max, p.Up+p.Busy(), 1) }

// Words lists the tags.
func (p poolRow) Words() string {
	var all []string
	for _, t := range slices.Concat(p.Tags, p.OnDemand) {
		all = append(all, t.Name)
	}
	return strings.Join(all, ", ")
}

type ticketRow struct {
	ID     pool.TicketID
	Word   string
	Words  string
	Opened time.Time
	Story  string
}

type resourceRow struct {
	api.Resource

	Word, Note string
	Uses       int
}

// overview reads the data of the page.
func (s *Server) overview(c caller) (overview, error) {
	o := overview{Now: time.Now().UTC().Format(time.RFC3339), Tokens: s.Tokens != nil, Who: c.name,
		Secrets: c.name != "" && c.may(RoleAdmin)}
	pools, err := s.Manager.Pools()
	if err != nil {
		return o, err
	}
	tickets, err := s.Manager.Tickets(false)
	if err != nil {
		return o, err
	}
	resources, err := s.Manager.Resources(false)
	if err != nil {
		return o, err
	}
	o.addPools(pools)
	o.addTickets(tickets, pools, resources)
	o.addResources(resources)
	return o, nil
}

func (o *overview) addPools(pools []pool.PoolStatus) {
	for _, p := range pools {
		row := poolRow{poolStatus(p)}
		if !o.Secrets {
			hideErrors(&row.Pool, &p.Settings)
		}
		o.Pools = append(o.Pools, row)
		t := &o.Totals
		t.Max += row.Max
		t.Up += row.Up
		t.Ready += row.Ready
		t.Taken += row.Taken
		t.Starting += row.Starting
		t.Releasing += row.Releasing
		t.DeleteRequest += row.DeleteRequest
		t.Deleting += row.Deleting
	}
}

// addTickets adds the tickets, waiting ones first, older ones before newer ones.
func (o *overview) addTickets(tickets []pool.TicketStatus, pools []pool.PoolStatus, resources []pool.Resource) {
	for _, t := range tickets {
		if t.State == pool.TicketOpen {
			o.Open++
		}
		if t.Waiting() {
			o.Waiting++
		}
	}
	slices.SortStableFunc(tickets, func(a, b pool.TicketStatus) int { return rank(a) - rank(b) })
	o.MoreTickets = max(0, len(tickets)-maxRows)
	for _, t := range tickets[:len(tickets)-o.MoreTickets] {
		o.Tickets = append(o.Tickets, ticketRow{
			ID: t.ID, Word: ticketWord(t), Words: strings.Join(t.Tags, ", "), Opened: t.Opened,
			Story: o.story(t, pools),
		})
	}
}

func rank(t pool.TicketStatus) int {
	switch {
	case t.Waiting():
		return 0
	case t.State == pool.TicketFailed:
		return 1
	}
	return 2
}

func ticketWord(t pool.TicketStatus) string {
	switch {
	case t.Waiting() && t.Never:
		return "never"
	case t.Waiting():
		return "waiting"
	case t.Ready():
		return "taken"
	}
	return strings.ToLower(string(t.State))
}

// story describes a ticket's resource, or what the ticket waits for. The output of commands is only for admins.
func (o *overview) story(t pool.TicketStatus, pools []pool.PoolStatus) string {
	switch {
	case t.State == pool.TicketFailed:
		return t.Reason
	case t.Has != nil:
		return t.Has.Name
	}
	if o.Secrets {
		return t.Waits
	}
	return withoutOutput(t.Waits, pools)
}

// withoutOutput removes the output of failed commands from the description of what a ticket waits for.
func withoutOutput(waits string, pools []pool.PoolStatus) string {
	for _, p := range pools {
		if p.LastError != "" && p.Settings.Instance == nil {
			waits = strings.ReplaceAll(waits, " ("+p.LastError+")", "")
		}
	}
	return waits
}

// addResources adds the resources: failed ones first, then those in transition.
func (o *overview) addResources(resources []pool.Resource) {
	slices.SortStableFunc(resources, func(a, b pool.Resource) int { return urgency(a) - urgency(b) })
	o.Live = len(resources)
	o.MoreResources = max(0, len(resources)-maxRows)
	for _, r := range resources[:len(resources)-o.MoreResources] {
		row := resourceRow{Resource: resource(r), Word: resourceWord(r), Note: r.Reason, Uses: r.Releases}
		if r.Ticket != 0 {
			row.Uses++
		}
		if r.Failures > 0 {
			row.Note = fmt.Sprintf("%d checks failed in a row", r.Failures)
		}
		if r.Deletes > 0 {
			row.Note = fmt.Sprintf("deleting it failed %d times", r.Deletes)
		}
		if !o.Secrets {
			row.Resource = *withoutSecrets(&row.Resource)
		} else if row.Error != "" {
			row.Note = strings.TrimPrefix(row.Note+": "+row.Error, ": ")
		}
		o.Resources = append(o.Resources, row)
	}
}

func urgency(r pool.Resource) int {
	switch {
	case r.Failures > 0 || r.Deletes > 0:
		return 0
	case r.State != pool.Up:
		return 1
	}
	return 2
}

func resourceWord(r pool.Resource) string {
	switch {
	case r.State == pool.Up && r.Ticket != 0:
		return "taken"
	case r.State == pool.Up && r.Failures > 0:
		return "broken"
	case r.State == pool.Up:
		return "ready"
	case r.State == pool.DeleteRequest:
		return "deleting"
	}
	return strings.ToLower(string(r.State))
}

// viewer returns the sender of a request for the page, which needs no token.
func (s *Server) viewer(r *http.Request) (c caller, unknown bool) {
	if c, unknown = s.who(r); s.Tokens == nil {
		return caller{}, false
	}
	return c, unknown
}

// page sends the page.
func (s *Server) page(w http.ResponseWriter, r *http.Request) {
	c, unknown := s.viewer(r)
	o, err := s.overview(c)
	if err != nil {
		fail(w, err)
		return
	}
	if unknown {
		o.Refused = "This server does not know that token."
	}
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, o); err != nil {
		fail(w, err)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy",
		"default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	_, _ = w.Write(b.Bytes())
}

// sections returns the parts of the page that change, as HTML.
func (s *Server) sections(c caller) (map[string]string, error) {
	o, err := s.overview(c)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, name := range []string{"pools", "tickets", "resources"} {
		var b strings.Builder
		if err := pageTemplate.ExecuteTemplate(&b, name, o); err != nil {
			return nil, err
		}
		all[name] = b.String()
	}
	return all, nil
}

// The pace of a live page: messages are at least minPause apart and at most maxPause, so that a broken connection
// is noticed.
const (
	minPause = 250 * time.Millisecond
	maxPause = 20 * time.Second
)

// events sends the page's sections whenever they change, until the client disconnects.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		fail(w, croft.Errorf(croft.Unavailable, "%d pages are live already", maxStreams))
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	changed := make(chan struct{}, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Manager.Watch(ctx, func() { // ended reports its end
			select {
			case changed <- struct{}{}:
			default:
			}
		})
	}()
	s.send(w, r, changed, ended)
	cancel()
	<-ended
}

// send sends changed sections until the watch ends, the client disconnects, or its rights change, for example because
// its token is revoked.
func (s *Server) send(w http.ResponseWriter, r *http.Request, changed, ended <-chan struct{}) {
	c, _ := s.viewer(r)
	out := http.NewResponseController(w)
	sent := map[string]string{}
	for {
		select {
		case <-changed:
		case <-time.After(maxPause):
		case <-ended:
			return
		}
		if now, _ := s.viewer(r); now != c {
			return // the page reconnects
		}
		news, err := s.sections(c)
		if err != nil {
			return // another server leads; the page reconnects
		}
		for name, html := range sent {
			if news[name] == html {
				delete(news, name)
			}
		}
		text, err := json.Marshal(map[string]any{"now": time.Now().UTC(), "sections": news})
		if err != nil {
			return
		}
		if _, err = fmt.Fprintf(w, "data: %s\n\n", text); err == nil {
			err = out.Flush()
		}
		if err != nil {
			return
		}
		for name, html := range news {
			sent[name] = html
		}
		select {
		case <-time.After(minPause):
		case <-ended:
			return
		}
	}
}

// login stores a token in a cookie, so that the page shows everything that the token's holder may see.
func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	http.SetCookie(w, &http.Cookie{
		Name: cookie, Value: strings.TrimSpace(r.PostFormValue("token")), Path: "/", HttpOnly: true,
		Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode,
	})
	http.Redirect(w, r, "./", http.StatusSeeOther)
}

// logout deletes the cookie.
func (s *Server) logout(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, &http.Cookie{Name: cookie, Path: "/", MaxAge: -1, HttpOnly: true,
		SameSite: http.SameSiteStrictMode})
	http.Redirect(w, r, "./", http.StatusSeeOther)
}
