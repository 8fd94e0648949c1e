package access

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"croft"
)

// Authenticator recognizes credentials of one kind.
type Authenticator interface {
	// Authenticate says who sent a request. False without an error: the request has no credentials of this kind.
	// Denied: it has, and they are worth nothing, because they are unknown, expired or revoked. Unavailable:
	// whether they are worth anything cannot be found out now. It may be called again for a request that goes on for
	// long, see StillKnown.
	Authenticate(ctx context.Context, r *http.Request) (Caller, bool, error)
}

// ErrNoCredentials is the error of a request without any credentials. Denied.
var ErrNoCredentials error = &unauthenticated{croft.Errorf(croft.Denied,
	"the request has no credentials: send a token as \"Authorization: Bearer croft_...\"")}

// unauthenticated marks an error about who the caller is, as against what the caller may do.
type unauthenticated struct{ err error }

func (e *unauthenticated) Error() string { return e.err.Error() }
func (e *unauthenticated) Unwrap() error { return e.err }

// Unauthenticated reports whether err is a refusal because nobody knows who the caller is (HTTP status 401). Other
// errors of kind Denied refuse a known caller (403).
func Unauthenticated(err error) bool {
	_, ok := errors.AsType[*unauthenticated](err)
	return ok
}

// First asks authenticators in turn, until one recognizes the credentials. It never answers false without an error:
// a request without credentials is ErrNoCredentials, and one whose credentials nobody recognizes is Denied. Every
// refusal is Unauthenticated. Credentials that one authenticator refuses are not shown to the next.
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

// InTree is a with callers in a tree of projects.
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
	case now != "" && now != caller.ProjectID: // what is known of projects, or of credentials, is not up to date
		if err := caller.Refresh(ctx, caller.Project); err == nil &&
			caller.Identity(caller.Project) == caller.ProjectID {
			break
		}
		return Caller{}, false, croft.Errorf(croft.Unavailable, "the credentials are of a former project %s, or the "+
			"present one was created just now: try again", caller.Project)
	}
	return caller, true, nil
}

// StillKnown asks a every so often whether the credentials of a request that goes on for long, such as a stream, still
// make its sender what it was, and returns the reason once they do not. It also returns when ctx ends, with its error.
// An authenticator that cannot tell now ends nothing.
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

// Still asks a whether the credentials of a request still make its sender what it was, and returns the reason if they
// do not. An authenticator that cannot tell now refuses nothing.
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

// refusal marks errors of kind Denied, and leaves others alone.
func refusal(err error) error {
	if croft.KindOf(err) != croft.Denied {
		return err
	}
	return &unauthenticated{err}
}
