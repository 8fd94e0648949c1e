package oidc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"croft"
)

// Tokens are the result of a login.
type Tokens struct {
	ID      string    // the token that the API accepts
	Expires time.Time // of ID
	Subject string    // the issuer's identifier of the user
	Refresh string    // renews ID; empty: the issuer gave none
}

// Handshake has the values that bind the answer of the issuer to a browser's login.
type Handshake struct {
	Redirect string // address to which the issuer leads the browser back
	State    string // comes back with the code
	Nonce    string // comes back in the token
	Verifier string // proves to the issuer that the code was requested here (PKCE)
}

// scopes are requested from an issuer that supports them: a name, groups, and a refresh token.
var scopes = []string{oidc.ScopeOpenID, "profile", "email", "groups", oidc.ScopeOfflineAccess}

// Scopes returns the scopes to request from an issuer when a user logs in.
func Scopes(provider *oidc.Provider) (all []string, err error) {
	var can struct {
		Scopes []string `json:"scopes_supported"`
	}
	if err := provider.Claims(&can); err != nil {
		return nil, err
	}
	for _, scope := range scopes {
		if scope == oidc.ScopeOpenID || slices.Contains(can.Scopes, scope) {
			all = append(all, scope)
		}
	}
	return all, nil
}

// Host returns the host name of the issuer.
func (i *Issuer) Host() string {
	u, err := url.Parse(i.c.Issuer)
	if err != nil {
		panic(fmt.Sprintf("oidc: %v", err)) // New has checked it
	}
	return u.Host
}

// AuthorizationURL returns the page of the issuer at which a browser logs in. Invalid; Unavailable.
func (i *Issuer) AuthorizationURL(ctx context.Context, a Handshake) (string, error) {
	c, err := i.logins(ctx, a.Redirect)
	if err != nil {
		return "", err
	}
	if c.Endpoint.AuthURL == "" {
		return "", croft.Errorf(croft.Invalid, "the issuer %s does not let browsers log in: use a token", i.c.Issuer)
	}
	return c.AuthCodeURL(a.State, oidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier)), nil
}

// Exchange returns the tokens for a code that the issuer gave to a browser. Denied; Unavailable.
func (i *Issuer) Exchange(ctx context.Context, a Handshake, code string) (Tokens, error) {
	c, err := i.logins(ctx, a.Redirect)
	if err != nil {
		return Tokens{}, err
	}
	given, err := c.Exchange(i.directly(ctx), code, oauth2.VerifierOption(a.Verifier))
	if err != nil {
		return Tokens{}, i.noTokens(err)
	}
	t, nonce, err := i.tokens(ctx, given)
	if err == nil && nonce != a.Nonce {
		err = croft.Errorf(croft.Denied, "the issuer %s answered with the token of another login: log in again", i.c.Issuer)
	}
	return t, err
}

// Renew returns new tokens for the user of others. Denied: the login has ended at the issuer. Unavailable.
func (i *Issuer) Renew(ctx context.Context, refresh, subject string) (Tokens, error) {
	c, err := i.logins(ctx, "")
	if err != nil {
		return Tokens{}, err
	}
	given, err := c.TokenSource(i.directly(ctx), &oauth2.Token{RefreshToken: refresh}).Token()
	if err != nil {
		return Tokens{}, i.noTokens(err)
	}
	t, _, err := i.tokens(ctx, given)
	if err == nil && t.Subject != subject {
		err = croft.Errorf(croft.Denied, "the issuer %s renewed a login with the token of another user", i.c.Issuer)
	}
	t.Refresh = cmp.Or(t.Refresh, refresh)
	return t, err
}

// logins returns the configuration of logins. Unavailable.
func (i *Issuer) logins(ctx context.Context, redirect string) (*oauth2.Config, error) {
	if _, err := i.ready(ctx); err != nil {
		return nil, err
	}
	wanted, err := Scopes(i.provider)
	if err != nil {
		return nil, croft.Errorf(croft.Unavailable, "the issuer %s does not answer as one: %w", i.c.Issuer, err)
	}
	c := &oauth2.Config{ClientID: i.c.Audience, Endpoint: i.provider.Endpoint(), RedirectURL: redirect, Scopes: wanted}
	c.Endpoint.AuthStyle = oauth2.AuthStyleInParams // a client without a secret
	return c, nil
}

// directly returns a context whose requests to the issuer are sent each time, within a time limit.
func (i *Issuer) directly(ctx context.Context) context.Context {
	return oidc.ClientContext(ctx, &http.Client{Transport: i.c.Transport, Timeout: patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }})
}

// mostTokens bounds the length of the tokens, which a session stores.
const mostTokens = 64 << 10

// tokens verifies the tokens that the issuer gave, and returns the nonce in them. Denied; Unavailable.
func (i *Issuer) tokens(ctx context.Context, given *oauth2.Token) (t Tokens, nonce string, err error) {
	text, _ := given.Extra("id_token").(string)
	if text == "" || len(text)+len(given.RefreshToken) > mostTokens {
		return t, "", croft.Errorf(croft.Denied, "the issuer %s gave no ID token that can be used: ask its operators "+
			"for the scope openid, and for fewer groups if it has more than 64 KiB", i.c.Issuer)
	}
	verifier, err := i.ready(ctx)
	if err != nil {
		return t, "", err
	}
	token, err := verifier.Verify(ctx, text)
	if err != nil {
		return t, "", i.refusal(err)
	}
	t = Tokens{ID: text, Expires: token.Expiry, Subject: token.Subject, Refresh: given.RefreshToken}
	return t, token.Nonce, nil
}

// noTokens explains why the issuer gives no tokens. It leaves out what was sent to the issuer.
func (i *Issuer) noTokens(err error) error {
	answer, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok || answer.ErrorCode == "" || answer.Response != nil && answer.Response.StatusCode >= 500 {
		why := "no answer that is a token"
		if ok && answer.Response != nil {
			why = answer.Response.Status
		} else if failed, is := errors.AsType[*url.Error](err); is {
			why = failed.Err.Error()
		}
		return croft.Errorf(croft.Unavailable, "the issuer %s gives no token now: %.200s", i.c.Issuer, why)
	}
	return croft.Errorf(croft.Denied, "the issuer %s gives no token: %s", i.c.Issuer, reason(answer.ErrorCode))
}

// Refused explains an error code with which the issuer leads a browser back. Denied.
func (i *Issuer) Refused(code string) error {
	return croft.Errorf(croft.Denied, "the issuer %s did not log you in: %s", i.c.Issuer, reason(code))
}

// reason describes an error code of OAuth in words.
func reason(code string) string {
	switch code {
	case "access_denied":
		return "it refuses, or you did"
	case "invalid_grant":
		return "the login has ended there, or its code was used already; log in again"
	case "invalid_client", "unauthorized_client":
		return "it does not know the client of this cloud, or wants a secret of it; tell the operators"
	case "temporarily_unavailable", "server_error":
		return "it has a fault; try again later"
	}
	return fmt.Sprintf("it says %.80q", code)
}
