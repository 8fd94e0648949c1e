// Package login keeps a user's logins to clouds between commands. It stores named contexts in a file that only the user
// may read. Each has an access token of croft, or tokens of an OpenID Connect issuer, which it renews.
package login

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"croft"
	"croft/internal/endpoint"
	issuer "croft/tenant/access/oidc"
)

// Context is a login that croft login stores for later commands.
type Context struct {
	URL     string        `json:"url"`
	CA      string        `json:"ca,omitempty"`      // file name
	Project croft.Project `json:"project,omitempty"` // the chosen one, if the user has roles in several
	User    string        `json:"user,omitempty"`    // name of the user in the cloud
	Token   string        `json:"token"`

	// For tokens of an issuer.
	Issuer  Issuer    `json:"issuer,omitzero"`
	Refresh string    `json:"refresh,omitempty"` // empty: the issuer gave none
	Expires time.Time `json:"expires,omitzero"`
}

// Issuer is an OpenID Connect issuer, and the client ID with which users log in there.
type Issuer struct {
	URL    string `json:"url"`
	Client string `json:"client"`
}

// patience limits the time of a request to an issuer.
const patience = 30 * time.Second

// discover reads an issuer's configuration for logins. Invalid; Unavailable.
func discover(ctx context.Context, i Issuer) (*oidc.Provider, *oauth2.Config, error) {
	u, err := url.Parse(i.URL)
	if err != nil || u.Host == "" || i.Client == "" ||
		u.Scheme != "https" && (u.Scheme != "http" || !endpoint.IsLoopback(u.Host)) {
		return nil, nil, croft.Errorf(croft.Invalid, "the issuer %.200q of this cloud has to be an https:// address", i.URL)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	provider, err := oidc.NewProvider(ctx, i.URL)
	if err != nil {
		return nil, nil, croft.Errorf(croft.Unavailable, "the issuer %s does not answer as one: %w", i.URL, err)
	}
	wanted, err := issuer.Scopes(provider)
	if err != nil {
		return nil, nil, croft.Errorf(croft.Unavailable, "the issuer %s does not answer as one: %w", i.URL, err)
	}
	c := &oauth2.Config{ClientID: i.Client, Endpoint: provider.Endpoint(), Scopes: wanted}
	c.Endpoint.AuthStyle = oauth2.AuthStyleInParams // a client without a secret
	return provider, c, nil
}

// Prompt is what a user has to do to log in.
type Prompt struct {
	Page string // page to open in a browser, on any device
	Code string // code to enter there
	Full string // page with the code filled in; empty: the issuer has none
}

// Device logs a user in by the device authorization grant (RFC 8628): it calls show, and returns once the user has
// entered the code. Denied: the user refused, or the code expired. Invalid; Unavailable.
func Device(ctx context.Context, i Issuer, show func(Prompt)) (Context, error) {
	provider, c, err := discover(ctx, i)
	if err != nil {
		return Context{}, err
	}
	if c.Endpoint.DeviceAuthURL == "" {
		return Context{}, croft.Errorf(croft.Invalid,
			"the issuer %s lets nobody log in from a command line: ask for a token of croft, and use --token", i.URL)
	}
	begun, err := c.DeviceAuth(ctx)
	if err != nil {
		return Context{}, refusal(ctx, i, err, "croft login")
	}
	show(Prompt{Page: begun.VerificationURI, Code: begun.UserCode, Full: begun.VerificationURIComplete})
	given, err := c.DeviceAccessToken(ctx, begun)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return Context{}, croft.Errorf(croft.Denied, "the code %s has expired: log in again", begun.UserCode)
	}
	if err != nil {
		return Context{}, refusal(ctx, i, err, "croft login")
	}
	return Context{Issuer: i}.with(ctx, provider, given)
}

// with returns the context with an issuer's tokens added.
func (c Context) with(ctx context.Context, provider *oidc.Provider, given *oauth2.Token) (Context, error) {
	text, _ := given.Extra("id_token").(string)
	token, err := provider.Verifier(&oidc.Config{ClientID: c.Issuer.Client}).Verify(ctx, text)
	if err != nil {
		return c, croft.Errorf(croft.Denied, "the issuer %s gave no token that counts: %w", c.Issuer.URL, err)
	}
	c.Token, c.Expires = text, token.Expiry
	if given.RefreshToken != "" {
		c.Refresh = given.RefreshToken
	}
	return c, nil
}

// refusal explains why an issuer gives no token; it leaves out what was sent to the issuer. again is the command that
// logs in again.
func refusal(ctx context.Context, i Issuer, err error, again string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	answer, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok || answer.Response != nil && answer.Response.StatusCode >= 500 {
		return croft.Errorf(croft.Unavailable, "the issuer %s does not answer: %w", i.URL, err)
	}
	why := map[string]string{"access_denied": "the user refused", "expired_token": "the code has expired",
		"invalid_grant": "the login has ended there", "invalid_client": "it does not know the client " + i.Client}
	reason := why[answer.ErrorCode]
	if reason == "" {
		reason = fmt.Sprintf("%.80q", answer.ErrorCode)
	}
	return croft.Errorf(croft.Denied, "the issuer %s gives no token: %s; run %s again", i.URL, reason, again)
}

// early is how long before its expiry a token is renewed.
const early = 30 * time.Second

// Token returns the token of a context, and renews it if it has expired or is about to expire. Only one of several
// processes renews it, because an issuer may accept each refresh token once only. Denied: it cannot be renewed.
// NotFound; Unavailable.
func (f File) Token(ctx context.Context, name string) (string, error) {
	c, err := f.Context(name)
	if err != nil || c.counts() {
		return c.Token, err
	}
	unlock, err := lock(f.renewals(name))
	if err != nil {
		return "", croft.Errorf(croft.Unavailable, "renew the login %s: %w", name, err)
	}
	defer unlock()
	if c, err = f.Context(name); err != nil || c.counts() {
		return c.Token, err
	}
	if c.Refresh == "" {
		return "", croft.Errorf(croft.Denied, "the login %s at %s expired on %s: run %s", name, c.URL,
			c.Expires.Local().Format(time.DateTime), c.Again(name))
	}
	provider, config, err := discover(ctx, c.Issuer)
	if err != nil {
		return "", err
	}
	given, err := config.TokenSource(ctx, &oauth2.Token{RefreshToken: c.Refresh}).Token()
	if err != nil {
		return "", refusal(ctx, c.Issuer, err, c.Again(name))
	}
	renewed, err := c.with(ctx, provider, given)
	if err != nil {
		return "", err
	}
	return renewed.Token, f.Change(func(all *Contexts) error {
		if all.Contexts[name].Refresh == c.Refresh { // otherwise the user has logged in or out meanwhile
			all.Contexts[name] = renewed
		}
		return nil
	})
}

// Again returns the command that logs in again.
func (c Context) Again(name string) string {
	words := []string{"croft login"}
	if name != Default {
		words = append(words, "--name "+name)
	}
	if c.Issuer.URL == "" {
		words = append(words, "--token")
	}
	return strings.Join(append(words, c.URL), " ")
}

// counts reports whether the token can be used without a renewal.
func (c Context) counts() bool { return c.Expires.IsZero() || time.Until(c.Expires) > early }
