package access_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/tenant/access"
)

// answers is an authenticator with one answer.
type answers struct {
	caller access.Caller
	ok     bool
	err    error
	asked  *int
}

func (a answers) Authenticate(context.Context, *http.Request) (access.Caller, bool, error) {
	if a.asked != nil {
		*a.asked++
	}
	return a.caller, a.ok, a.err
}

func request(t *testing.T, headers ...string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://croft.invalid/v1", nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

func TestFirstAsksInTurn(t *testing.T) {
	asked := 0
	knows := func(user string) answers { return answers{caller: access.Caller{User: user}, ok: true} }
	other, counts := answers{}, answers{asked: &asked}
	expired := answers{err: croft.Errorf(croft.Denied, "this token has expired")}
	away := answers{err: croft.Errorf(croft.Unavailable, "the identity service does not answer")}
	for _, c := range []struct {
		name            string
		in              []access.Authenticator
		headers         []string
		user            string
		kind            croft.Kind
		unauthenticated bool
		none            bool
	}{
		{"the one that recognizes the credentials answers", []access.Authenticator{other, knows("ann"), counts}, nil,
			"ann", "", false, false},
		{"refused credentials are not shown to the next", []access.Authenticator{expired, counts}, nil,
			"", croft.Denied, true, false},
		{"nor are those that nobody can judge now", []access.Authenticator{away, counts}, nil,
			"", croft.Unavailable, false, false},
		{"no credentials at all", []access.Authenticator{other, other}, nil, "", croft.Denied, true, true},
		{"no authenticator", nil, nil, "", croft.Denied, true, true},
		{"credentials that nobody recognizes", []access.Authenticator{other}, []string{"Authorization", "Basic eDp5"},
			"", croft.Denied, true, false},
		{"a token of OpenStack's that nobody recognizes", []access.Authenticator{other},
			[]string{"X-Auth-Token", "x"}, "", croft.Denied, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok, err := access.First(c.in...).Authenticate(t.Context(), request(t, c.headers...))
			if got.User != c.user || ok != (c.user != "") || croft.KindOf(err) != c.kind {
				t.Errorf("got %q, %v, %v; want %q and kind %q", got.User, ok, err, c.user, c.kind)
			}
			if access.Unauthenticated(err) != c.unauthenticated || errors.Is(err, access.ErrNoCredentials) != c.none {
				t.Errorf("%v: unauthenticated %v, no credentials %v", err, access.Unauthenticated(err),
					errors.Is(err, access.ErrNoCredentials))
			}
		})
	}
	if asked != 0 {
		t.Errorf("an authenticator after the one that answered was asked %d times", asked)
	}
}

func TestAForbiddenVerbIsNotUnauthenticated(t *testing.T) {
	if err := croft.Errorf(croft.Denied, "readers destroy nothing"); access.Unauthenticated(err) {
		t.Errorf("%v counts as unauthenticated", err)
	}
}

func TestCallersAreInTheTree(t *testing.T) {
	admin := answers{caller: access.Caller{Project: "lab", Roles: []access.Role{access.ProjectAdmin}}, ok: true}
	got, ok, err := access.InTree(projects, admin).Authenticate(t.Context(), request(t))
	if !ok || err != nil || !got.Scope().Sees("lab-b") {
		t.Errorf("got %+v, %v, %v; want one who sees what is below", got, ok, err)
	}
}

// fades is an authenticator whose answer changes.
type fades struct{ now atomic.Pointer[answers] }

func (f *fades) Authenticate(ctx context.Context, r *http.Request) (access.Caller, bool, error) {
	return f.now.Load().Authenticate(ctx, r)
}

func TestAStreamEndsWithItsCredentials(t *testing.T) {
	good := &answers{ok: true, caller: access.Caller{Project: "lab", Roles: []access.Role{access.Member}}}
	for _, c := range []struct {
		name string
		then *answers
		ends bool
	}{
		{"a token that is revoked", &answers{err: croft.Errorf(croft.Denied, "this token is unknown")}, true},
		{"credentials that are recognized no more", &answers{}, true},
		{"an authenticator that cannot tell", &answers{err: croft.Errorf(croft.Unavailable, "try again")}, false},
		{"a member whose role is another", &answers{ok: true, caller: access.Caller{Project: "lab",
			Roles: []access.Role{access.Reader}}}, true},
		{"a member of another project", &answers{ok: true, caller: access.Caller{Project: "shop",
			Roles: []access.Role{access.Member}}}, true},
		{"credentials that stay good", good, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				f, began := &fades{}, time.Now()
				f.now.Store(good)
				time.AfterFunc(time.Minute+time.Second, func() { f.now.Store(c.then) })
				err := access.StillKnown(ctx, f, request(t), good.caller, 5*time.Second)
				after := time.Since(began)
				if c.ends && (!access.Unauthenticated(err) || after != 65*time.Second) {
					t.Errorf("ends after %s with %v", after, err)
				}
				if !c.ends && (!errors.Is(err, context.DeadlineExceeded) || after != time.Hour) {
					t.Errorf("ends after %s with %v, want the end of the context", after, err)
				}
			})
		})
	}
}
