package page

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"

	"croft"
	"croft/client"
	"croft/control/api"
	"croft/control/page/session"
	"croft/tenant/access/oidc"
)

// Paths of the login at the issuer. The issuer leads browsers back to issuerBack.
const (
	issuerStart = Root + "/login/start"
	issuerBack  = Root + "/login/oidc"
)

// attemptName is the name of the cookie of a login at the issuer.
func (s *Server) attemptName(r *http.Request) string { return s.cookieName(r) + "-login" }

// setAttempt sets the cookie of a login at the issuer. Unlike the cookie of a session, browsers send it when the issuer
// leads them back.
func (s *Server) setAttempt(w http.ResponseWriter, r *http.Request, value string, age int) {
	s.setSecret(w, r, &http.Cookie{Name: s.attemptName(r), Value: value, MaxAge: age, SameSite: http.SameSiteLaxMode})
}

// issuerLink is what the page of the login shows of the issuer.
type issuerLink struct{ Host, At string }

// loginLink returns the link that starts a login at the issuer; nil: the cloud has no issuer.
func (s *Server) loginLink(next string) *issuerLink {
	if s.issuer == nil {
		return nil
	}
	return &issuerLink{s.issuer.Host(), s.public + issuerStart + "?" + url.Values{"next": {next}}.Encode()}
}

// mostNext bounds the address in a cookie.
const mostNext = 1024

// startAtIssuer leads a browser to the issuer.
func (s *Server) startAtIssuer(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(from(r), answerTime)
	defer cancel()
	next := local(r.URL.Query().Get("next"))
	if len(next) > mostNext {
		next = Root
	}
	attempt := session.NewHandshake(next)
	at, err := s.issuer.AuthorizationURL(ctx, s.values(r, attempt))
	if err != nil {
		s.answerLogin(w, r, failureOf(r, err).Status, next, err)
		return
	}
	s.setAttempt(w, r, attempt.Text(), int(session.HandshakeLife.Seconds()))
	http.Redirect(w, r, at, http.StatusSeeOther)
}

// values returns what the issuer gets, and has to give back.
func (s *Server) values(r *http.Request, a session.Handshake) oidc.Handshake {
	own := url.URL{Scheme: "http", Host: r.Host}
	if r.TLS != nil {
		own.Scheme = "https"
	}
	return oidc.Handshake{Redirect: cmp.Or(s.public, own.String()) + issuerBack, State: a.State(), Nonce: a.Nonce(),
		Verifier: a.Verifier()}
}

// returnFromIssuer answers a browser that the issuer leads back. Browsers send the cookie of the new session only with
// requests that a page of this server makes, so the answer is such a page.
func (s *Server) returnFromIssuer(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(from(r), answerTime)
	defer cancel()
	next, err := s.finishAtIssuer(ctx, w, r)
	if err != nil {
		s.answerLogin(w, r, failureOf(r, err).Status, next, err)
		return
	}
	f := frame{Title: "Logged in", Theme: theme(r), Help: helpFor(r.Pattern), Data: next}
	if err := s.render(w, http.StatusOK, "onward", f); err != nil {
		s.fail(w, r, err)
	}
}

// finishAtIssuer starts a session with the code that the issuer gave, and returns where the user wanted to go.
func (s *Server) finishAtIssuer(ctx context.Context, w http.ResponseWriter, r *http.Request) (next string, err error) {
	text := ""
	if cookie, err := r.Cookie(s.attemptName(r)); err == nil {
		text = cookie.Value
		s.setAttempt(w, r, "", -1)
	}
	attempt, err := session.ParseHandshake(text)
	if err != nil {
		return Root, err
	}
	next = local(attempt.Next)
	q := r.URL.Query()
	if err := attempt.Check(q.Get("state")); err != nil {
		return next, err
	}
	if code := q.Get("error"); code != "" || q.Get("code") == "" {
		return next, s.issuer.Refused(cmp.Or(code, "no code"))
	}
	got, err := s.issuer.Exchange(ctx, s.values(r, attempt), q.Get("code"))
	if err != nil {
		return next, err
	}
	_, err = s.begin(ctx, w, r, credentialsOf(got))
	return next, err
}

func credentialsOf(t oidc.Tokens) session.Credentials {
	return session.Credentials{Token: t.ID, Refresh: t.Refresh, Subject: t.Subject, Expires: t.Expires}
}

// credentials returns the credentials of a session, which are renewed at the issuer.
func (s *Server) credentials(ctx context.Context, secret session.Secret) (session.Credentials, error) {
	return s.sessions.Credentials(ctx, secret, func(ctx context.Context, c session.Credentials) (session.Credentials,
		error) {
		if s.issuer == nil {
			return c, croft.Errorf(croft.Denied, "the cloud has no issuer any more")
		}
		t, err := s.issuer.Renew(ctx, c.Refresh, c.Subject)
		return credentialsOf(t), err
	})
}

// projectsIn returns the projects of which a user has to choose one, according to a refusal of the API; nil: it is
// another error.
func projectsIn(err error) []croft.Project {
	if p, is := errors.AsType[*api.Problem](err); is {
		return p.Projects
	}
	return nil
}

// projectChoice is what the page shows on which a user chooses a project.
type projectChoice struct {
	Projects []croft.Project
	Next     string
	Kept     *kept // the form to return to; nil: no form was sent
}

// askProject shows the projects of a user who has to choose one.
func (s *Server) askProject(w http.ResponseWriter, r *http.Request, secret session.Secret, next string,
	k *kept, projects []croft.Project) {
	f := frame{Title: "Choose a project", Theme: theme(r), Help: helpFor(r.Pattern), Form: secret.Forms(),
		Data: projectChoice{projects, next, k}}
	if err := s.render(w, http.StatusOK, "choose", f); err != nil {
		s.fail(w, r, err)
	}
}

// chooseProject sets the project of a session, or shows the projects again.
func (s *Server) chooseProject(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(from(r), answerTime)
	defer cancel()
	v, c, err := s.open(ctx, w, r)
	if ended(err) {
		s.forget(w, r)
		s.answerLogin(w, r, http.StatusUnauthorized, Root, err)
		return
	}
	if err == nil && v.former {
		err = errFormer
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	project, next := croft.Project(r.PostForm.Get("project")), local(r.PostForm.Get("next"))
	c.Project = project
	if v.client, err = s.client(c); err == nil {
		_, err = v.client.Whoami(ctx)
	}
	k := keptAgain(r)
	if projects := projectsIn(err); projects != nil { // none was chosen
		s.askProject(w, r, v.secret, next, k, projects)
		return
	}
	if err == nil {
		err = s.sessions.Choose(ctx, v.secret, project)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.goOn(w, r, next, k, v.secret)
}

// client returns a client of the API with credentials.
func (s *Server) client(c session.Credentials) (*client.Client, error) {
	return clientOver(s.api, c)
}

// clientOver returns a client of an API with credentials.
func clientOver(over *http.Client, c session.Credentials) (*client.Client, error) {
	return client.Through(over, client.Settings{URL: "http://localhost", Token: c.Token, Home: c.Project})
}
