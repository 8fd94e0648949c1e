package access

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"croft"
)

// Authenticator authenticates credentials of one kind.
type Authenticator interface {
	// Authenticate returns the sender of a request. False without an error: the request has no credentials of this
	// kind. Denied: the credentials are invalid, because they are unknown, expired or revoked. Unavailable: they cannot
	// be checked now. It may be called repeatedly for a long request, see StillKnown.
	Authenticate(ctx context.Context, r *http.Request) (Caller, bool, error)
}

// ErrNoCredentials is the error of a request without any credentials. Denied.
var ErrNoCredentials error = &unauthenticated{croft.Errorf(croft.Denied,
	"the request has no credentials: send a token as \"Authorization: Bearer croft_...\"")}

// unauthenticated marks an error about the identity of the caller, as opposed to the caller's rights.
type unauthenticated struct{ err error }

func (e *unauthenticated) Error() string { return e.err.Error() }
func (e *unauthenticated) Unwrap() error { return e.err }

// Unauthenticated reports whether err is a refusal because the caller is unknown (HTTP status 401). Other errors of
// kind Denied refuse a known caller (403).
func Unauthenticated(err error) bool {
	_, ok := errors.AsType[*unauthenticated](err)
	return ok
}

// First calls authenticators in turn, until one accepts the credentials. It never returns false without an error: a
// request without credentials gets ErrNoCredentials, and unknown credentials are Denied. Every refusal is
// Unauthenticated. Credentials that one authenticator refuses are not passed to the next.
func First(authenticators ...Authenticator) Authenticator { return first(authenticators) }

type first []Authenticator

func (list first) Authenticate(ctx context.Context, r *http.Request) (Caller, bool, error) {
	for _, a := range list {
		caller, ok, err := a.Authenticate(ctx, r)
		if err != nil {
			return Caller{}, false, refusal(err)
		}
		if ok {
			return caller, true, nil
		}
	}
	if r.Header.Get("Authorization") == "" && r.Header.Get("X-Auth-Token") == "" {
		return Caller{}, false, ErrNoCredentials
	}
	return Caller{}, false, refusal(croft.Errorf(croft.Denied, "the credentials of the request are of no kind that is "+
		"accepted here: send a token of this cloud as \"Authorization: Bearer croft_...\""))
}

// InTree returns an authenticator like a, whose callers have a tree of projects.
func InTree(t Tree, a Authenticator) Authenticator { return inTree{t, a} }

type inTree struct {
	tree Tree
	Authenticator
}

func (a inTree) Authenticate(ctx context.Context, r *http.Request) (Caller, bool, error) {
	caller, ok, err := a.Authenticator.Authenticate(ctx, r)
	if err != nil || !ok {
		return caller, ok, err
	}
	caller = caller.In(a.tree)
	switch now := caller.Identity(caller.Project); {
	case caller.ProjectID == "":
		caller.ProjectID = now
	case now != "" && now != caller.ProjectID: // the tree or the known credentials are out of date
		if err := caller.Refresh(ctx, caller.Project); err == nil &&
			caller.Identity(caller.Project) == caller.ProjectID {
			break
		}
		return Caller{}, false, croft.Errorf(croft.Unavailable, "the credentials are of a former project %s, or the "+
			"present one was created just now: try again", caller.Project)
	}
	return caller, true, nil
}

// StillKnown checks periodically whether the credentials of a long request, such as a stream, still identify the caller
// was, and returns the reason once they do not. It also returns when ctx ends, with its error. An authenticator that is
// Unavailable ends nothing.
func StillKnown(ctx context.Context, a Authenticator, r *http.Request, was Caller, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if err := Still(ctx, a, r, was); err != nil {
			return err
		}
	}
}

// Still checks whether the credentials of a request still identify the caller was, and returns the reason if they do
// not. An authenticator that is Unavailable refuses nothing.
func Still(ctx context.Context, a Authenticator, r *http.Request, was Caller) error {
	switch now, ok, err := a.Authenticate(ctx, r); {
	case croft.KindOf(err) == croft.Denied:
		return refusal(err)
	case err == nil && !ok:
		return ErrNoCredentials
	case err == nil && was.ProjectID != "" && now.ProjectID != was.ProjectID:
		return refusal(croft.Errorf(croft.Denied, "the project %s of %s was removed: ask again", was.Project, was.User))
	case err == nil && (now.Project != was.Project || !slices.Equal(now.Roles, was.Roles)):
		return refusal(croft.Errorf(croft.Denied, "the roles of %s have changed: ask again", was.User))
	}
	return nil
}

// refusal marks errors of kind Denied, and returns others unchanged.
func refusal(err error) error {
	if croft.KindOf(err) != croft.Denied {
		return err
	}
	return &unauthenticated{err}
}
