package session

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"croft"
	"croft/internal/delay"
)

// Credentials are what a session calls the API with.
type Credentials struct {
	Token   string        `json:"token"`
	Project croft.Project `json:"project,omitempty"` // that the user chose; empty: the only one, or the token's

	// For tokens of an issuer. Without a token to renew them, the session ends with its token.
	Refresh string    `json:"refresh,omitempty"`
	Subject string    `json:"subject,omitempty"` // the issuer's identifier of the user
	Expires time.Time `json:"expires,omitzero"`  // of Token
}

// text returns the credentials as they are sealed.
func (c Credentials) text() string {
	text, err := json.Marshal(c)
	if err != nil {
		panic(fmt.Sprintf("session: %v", err)) // all fields can be encoded
	}
	return string(text)
}

// due reports whether the token has to be renewed.
func (c Credentials) due() bool { return c.Refresh != "" && time.Until(c.Expires) <= early }

const (
	early     = 30 * time.Second       // how long before its expiry a token is renewed
	renewTime = 25 * time.Second       // time limit of a renewal
	pause     = 100 * time.Millisecond // between two looks at the renewal of another server
)

// Renew renews credentials. Denied: they cannot be renewed any more. Unavailable.
type Renew func(ctx context.Context, c Credentials) (Credentials, error)

// Credentials returns the credentials of a session, and renews them if they are about to expire. Only one request
// renews them, because an issuer may accept each refresh token once only. Denied: the session has ended. Unavailable.
func (s Sessions) Credentials(ctx context.Context, secret Secret, renew Renew) (Credentials, error) {
	for {
		r, c, err := s.read(ctx, secret)
		if err != nil || !c.due() {
			return c, err
		}
		if time.Now().Before(r.Renewing) {
			if err := delay.For(ctx, pause); err != nil {
				return Credentials{}, err
			}
			continue
		}
		mine := r
		mine.Renewing = time.Now().UTC().Add(renewTime)
		if err := s.replace(ctx, secret, r, mine); err == nil {
			return s.renew(ctx, secret, mine, c, renew)
		} else if croft.KindOf(err) != croft.Conflict {
			return Credentials{}, err
		}
	}
}

// renew renews the credentials of a session whose record says that this server may. It goes on if the browser leaves,
// because the issuer may have replaced the refresh token already.
func (s Sessions) renew(ctx context.Context, secret Secret, mine Record, c Credentials, renew Renew) (Credentials,
	error) {
	limited, cancel := context.WithDeadline(context.WithoutCancel(ctx), mine.Renewing)
	defer cancel()
	renewed, err := renew(limited, c)
	ctx = context.WithoutCancel(ctx)
	if croft.KindOf(err) == croft.Denied {
		if failed := s.End(ctx, secret); failed != nil {
			return Credentials{}, failed
		}
		return Credentials{}, errEnded
	}
	done := mine
	done.Renewing = time.Time{}
	if err != nil { // the next request tries again
		_ = s.replace(ctx, secret, mine, done) // otherwise it tries when the time of this one is over
		return Credentials{}, err
	}
	renewed.Project = c.Project
	done.Sealed = secret.seal(renewed.text())
	return renewed, ended(s.replace(ctx, secret, mine, done))
}

// Choose sets the project of a session. Denied: the session has ended. Unavailable.
func (s Sessions) Choose(ctx context.Context, secret Secret, p croft.Project) error {
	for {
		r, c, err := s.read(ctx, secret)
		if err != nil {
			return err
		}
		c.Project = p
		chosen := r
		chosen.Sealed = secret.seal(c.text())
		if !time.Now().Before(r.Renewing) {
			if err := s.replace(ctx, secret, r, chosen); croft.KindOf(err) != croft.Conflict {
				return err
			}
		}
		if err := delay.For(ctx, pause); err != nil {
			return err
		}
	}
}

// ended returns that the session has ended for a record that was replaced or removed by another request.
func ended(err error) error {
	if croft.KindOf(err) == croft.Conflict {
		return errEnded
	}
	return err
}

// replace stores a record in place of another one. Conflict.
func (s Sessions) replace(ctx context.Context, secret Secret, former, r Record) error {
	return s.Store.Replace(ctx, secret.holder, secret.id(), former, r)
}

// read returns the record and the credentials of a session. Denied: it has ended. Unavailable.
func (s Sessions) read(ctx context.Context, secret Secret) (Record, Credentials, error) {
	r, err := s.Store.Get(ctx, secret.holder, secret.id())
	text, err := secret.credentials(r, err)
	if err != nil {
		return r, Credentials{}, err
	}
	var c Credentials
	if json.Unmarshal([]byte(text), &c) != nil || c.Token == "" {
		return r, c, errEnded // of another version
	}
	return r, c, nil
}
