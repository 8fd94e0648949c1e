package page

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"croft"
	"croft/client"
	"croft/control/api"
	"croft/control/page/session"
	"croft/tenant"
	"croft/tenant/access"
)

// visit is one request of a browser that is logged in.
type visit struct {
	*Server
	w       http.ResponseWriter
	r       *http.Request
	ctx     context.Context
	secret  session.Secret
	client  *client.Client
	caller  access.Caller
	project croft.Project // of the address; empty: as the API has it by default
	chosen  croft.Project // of the session, for users with roles in several projects
	former  bool          // the form is of a session that has ended: it is shown again, and nothing is changed
}

// mostForm bounds the body of a form: a form with user-data of 64 KiB is longer.
const mostForm = 512 << 10

// serve answers a request for a view.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, do func(*visit) error) {
	ctx, cancel := context.WithTimeout(from(r), answerTime)
	defer cancel()
	v, err := s.visit(ctx, w, r)
	if err == nil && v.former && !keeps(r) {
		err = errFormer
	}
	if err == nil {
		err = do(v)
	}
	switch {
	case err == nil:
	case v != nil && projectsIn(err) != nil:
		s.askProject(w, r, v.secret, local(r.URL.RequestURI()), keptOf(w, r), projectsIn(err))
	case ended(err) && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		s.forget(w, r)
		http.Redirect(w, r, Root+"/login?"+url.Values{"next": {r.URL.RequestURI()}}.Encode(), http.StatusSeeOther)
	case ended(err):
		s.forget(w, r)
		s.askLogin(w, r, http.StatusUnauthorized, Root, keptOf(w, r), err)
	case v == nil:
		s.fail(w, r, err)
	default:
		v.fail(err)
	}
}

// ended reports whether an error says that the credentials of a session do not count any more.
func ended(err error) bool {
	p, is := errors.AsType[*api.Problem](err)
	return errors.Is(err, errNoSession) || is && p.Code == api.Unauthenticated
}

// errNoSession is the error of a request that needs a session and has none. Denied.
var errNoSession error = noSession{croft.Errorf(croft.Denied, "the session has ended: log in again")}

type noSession struct{ error }

func (n noSession) Unwrap() error { return n.error }

// visit finds the session and the caller of a request, and checks the token of a form. errNoSession.
func (s *Server) visit(ctx context.Context, w http.ResponseWriter, r *http.Request) (*visit, error) {
	v, c, err := s.open(ctx, w, r)
	if err != nil {
		return nil, err
	}
	over := s.api
	if v.former {
		over = &http.Client{Transport: unchanging{s.api.Transport}, CheckRedirect: s.api.CheckRedirect}
	}
	if v.client, err = clientOver(over, c); err != nil {
		return nil, err
	}
	v.chosen = c.Project
	v.caller, err = v.client.Whoami(ctx)
	return v, err
}

// open finds the session of a request, and checks the token of a form. errNoSession.
func (s *Server) open(ctx context.Context, w http.ResponseWriter, r *http.Request) (v *visit, c session.Credentials,
	err error) {
	cookie, err := r.Cookie(s.cookieName(r))
	if err != nil {
		return nil, c, errNoSession
	}
	secret, err := session.Parse(cookie.Value)
	if err != nil {
		return nil, c, errNoSession
	}
	c, err = s.credentials(ctx, secret)
	if croft.KindOf(err) == croft.Denied {
		return nil, c, errNoSession
	}
	if err != nil {
		return nil, c, err
	}
	v = &visit{Server: s, w: w, r: r, ctx: ctx, secret: secret, project: croft.Project(r.URL.Query().Get("project"))}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		if err := readForm(w, r, mostForm); err != nil {
			return nil, c, err
		}
		own := secret.Owns(r.PostForm.Get("form"))
		v.former = !own || r.PostForm.Has(againField)
		if !own && (r.PostForm.Get("form") == "" || !fromThisPage(r)) {
			return nil, c, croft.Errorf(croft.Denied, "this form is not of your session: reload the page that it was on, "+
				"and send it again")
		}
	}
	return v, c, nil
}

// frame is what every page shows around its own content.
type frame struct {
	Title   string
	Section string // of the navigation
	Caller  *access.Caller
	Changes bool // the caller's roles permit changes, perhaps not of everything
	Theme   string
	Form    string // the token of the forms of the session
	Here    string // the address of this page, to return to
	Help    string // the address of the document about it
	Project croft.Project
	Chosen  croft.Project // of the session, which can be changed; empty: the caller has one project, or is an operator
	// Projects that the caller may switch to; nil: only the own one.
	Projects []tenant.Tenant
	Notice   string // what was done
	Data     any
}

// mostProjects is the number of projects that the switcher offers.
const mostProjects = 200

// frame returns the frame for a page.
func (v *visit) frame(title string, data any) frame {
	section, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(v.r.URL.Path, Root), "/"), "/")
	if v.r.URL.Path == Root+"/instances/new" {
		section = "new"
	}
	f := frame{Title: title, Section: section, Caller: &v.caller, Theme: theme(v.r), Form: v.secret.Forms(),
		Changes: access.MayAnywhere(access.Changes, v.caller.Roles), Here: v.r.URL.RequestURI(),
		Help:    helpFor(v.r.Pattern),
		Project: v.project, Chosen: v.chosen, Notice: notice(v.r.URL.Query()), Data: data}
	if v.caller.Operator() || v.caller.Has(access.ProjectAdmin) {
		list, err := v.client.ListProjects(v.ctx, api.Listing{Limit: mostProjects})
		if err == nil { // the page is useful without the switcher
			f.Projects = list.Projects
		}
	}
	return f
}

// show answers with a page.
func (v *visit) show(status int, name, title string, data any) error {
	return v.write(status, name, v.frame(title, data))
}

func (s *Server) render(w http.ResponseWriter, status int, name string, f frame) error {
	var b bytes.Buffer
	if err := pages[name].Execute(&b, f); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(visible(b.Bytes())) // ignore browsers that disconnected
	return nil
}

func (v *visit) write(status int, name string, f frame) error { return v.render(v.w, status, name, f) }

// link returns an address of the page in the project of the visit.
func (v *visit) link(path string, query ...string) string { return link(v.project, path, query...) }

func link(project croft.Project, path string, query ...string) string {
	q := url.Values{}
	if project != "" {
		q.Set("project", string(project))
	}
	for i := 0; i+1 < len(query); i += 2 {
		q.Add(query[i], query[i+1])
	}
	if len(q) == 0 {
		return Root + path
	}
	return Root + path + "?" + q.Encode()
}

// redirect leads the browser to another page after a change.
func (v *visit) redirect(path string, query ...string) error {
	http.Redirect(v.w, v.r, v.link(path, query...), http.StatusSeeOther)
	return nil
}

// failure is what an error page shows.
type failure struct {
	Status int
	Title  string // the status in words
	Kind   string // the kind of the error, as the command line and the API have it
	refusal

	Back, BackTo string // the page to go on from, and its name
}

func failureOf(r *http.Request, err error) failure {
	if err == nil {
		return failure{Status: http.StatusOK}
	}
	f := failure{Status: croft.HTTPStatus(err), Kind: string(api.CodeOf(err))}
	f.Says = inWordsOfThePage.Replace(err.Error())
	f.Back, f.BackTo = wayBack(r)
	if p, is := errors.AsType[*api.Problem](err); is {
		f.Status, f.Kind, f.Request = p.Status, string(p.Code), p.Request
	}
	f.Title = http.StatusText(f.Status)
	return f
}

// fail answers with the error page, for a browser that need not be logged in.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	d := failureOf(r, err)
	f := frame{Title: d.Title, Theme: theme(r), Help: helpFor(r.Pattern), Data: d}
	if s.render(w, d.Status, "error", f) != nil {
		http.Error(w, d.Says, d.Status)
	}
}

// fail answers with the error page.
func (v *visit) fail(err error) {
	d := failureOf(v.r, err)
	d.refusal = v.refusalOf(err)
	if d.Status >= http.StatusInternalServerError {
		v.log.Warn("a page cannot be shown", "path", v.r.URL.Path, "err", err)
	}
	if v.show(d.Status, "error", d.Title, d) != nil {
		http.Error(v.w, d.Says, d.Status)
	}
}

func (v *visit) home() error { return v.redirect("/instances") }

func (v *visit) showKeyboard() error { return v.show(http.StatusOK, "keys", "Keyboard", nil) }

// theme returns the colors that the browser's user chose: light, dark, or empty for the colors of the system.
func theme(r *http.Request) string {
	if c, err := r.Cookie("croft-theme"); err == nil && (c.Value == "light" || c.Value == "dark") {
		return c.Value
	}
	return ""
}

// themeLife is how long a choice of colors is kept.
const themeLife = 366 * 24 * time.Hour

func (v *visit) chooseTheme() error {
	chosen := v.r.PostForm.Get("theme")
	if !slices.Contains([]string{"light", "dark", "auto"}, chosen) {
		return croft.Errorf(croft.Invalid, "there are no colors %.40q: choose light, dark or auto", chosen)
	}
	http.SetCookie(v.w, &http.Cookie{Name: "croft-theme", Value: chosen, Path: Root,
		MaxAge: int(themeLife / time.Second), HttpOnly: true, Secure: v.secure(v.r),
		SameSite: http.SameSiteStrictMode})
	http.Redirect(v.w, v.r, local(v.r.PostForm.Get("here")), http.StatusSeeOther)
	return nil
}

// local returns an address if it belongs to the page, also as browsers read it, else Root.
func local(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(address, Root) ||
		u.Path != Root && !strings.HasPrefix(u.Path, Root+"/") || checkAddress(u) != nil {
		return Root
	}
	steps := strings.FieldsFunc(u.Path, func(r rune) bool { return r == '/' || r == '\\' })
	up := func(step string) bool { return step == "." || step == ".." }
	apart := []string{"login", "logout", "link"}
	if slices.ContainsFunc(steps, up) || len(steps) > 1 && slices.Contains(apart, steps[1]) {
		return Root
	}
	return u.String()
}
