// Package login keeps who a user is to a cloud between commands: a context in a file of the user's own, with a token of
// croft, or with those of an OpenID Connect issuer, which it renews.
package login

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/adrg/xdg"
	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"croft"
	"croft/internal/durable"
	"croft/internal/endpoint"
	"croft/internal/filelock"
)

// Context is what croft login leaves for later commands.
type Context struct {
	URL     string        `json:"url"`
	CA      string        `json:"ca,omitempty"`      // file
	Project croft.Project `json:"project,omitempty"` // of several that the user has roles in
	Token   string        `json:"token"`

	// Of a token of an issuer.
	Issuer  Issuer    `json:"issuer,omitzero"`
	Refresh string    `json:"refresh,omitempty"` // empty: the issuer gave none
	Expires time.Time `json:"expires,omitzero"`
}

// Issuer is an OpenID Connect issuer, and as which client users log in there.
type Issuer struct {
	URL    string `json:"url"`
	Client string `json:"client"`
}

// File is where the context is: in the user's directory of settings.
func File() string { return filepath.Join(xdg.ConfigHome, "croft", "login.json") }

// Read returns the context. NotFound: there is none. Invalid: others than its owner may read it, or it is damaged.
func Read(file string) (c Context, err error) {
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return c, croft.Errorf(croft.NotFound, "nobody is logged in: run croft login")
	}
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		return c, croft.Errorf(croft.Invalid,
			"%s has a token in it, and others may read it: chmod 600 it, or run croft logout", file)
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(file)
	}
	if err != nil {
		return c, croft.Errorf(croft.Invalid, "read the login: %w", err)
	}
	if err := json.Unmarshal(text, &c); err != nil || c.URL == "" {
		return Context{}, croft.Errorf(croft.Invalid, "%s is damaged: run croft login again", file)
	}
	return c, nil
}

// Write replaces the context. Only its owner may read it.
func (c Context) Write(file string) error {
	text, err := json.MarshalIndent(c, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o700)
	}
	if err == nil {
		err = durable.Write(file, append(text, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("keep the login: %w", err)
	}
	return nil
}

// Remove removes the context. NotFound: there is none.
func Remove(file string) error {
	err := os.Remove(file)
	if errors.Is(err, fs.ErrNotExist) {
		return croft.Errorf(croft.NotFound, "nobody is logged in")
	}
	return err
}

// scopes are what is asked of an issuer, as far as it says that it has them: a name, groups, and a refresh token.
var scopes = []string{oidc.ScopeOpenID, "profile", "email", "groups", oidc.ScopeOfflineAccess}

// patience bounds a request to an issuer.
const patience = 30 * time.Second

// discover asks an issuer how to log in. Invalid; Unavailable.
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
	var can struct {
		Scopes []string `json:"scopes_supported"`
	}
	if err := provider.Claims(&can); err != nil {
		return nil, nil, croft.Errorf(croft.Unavailable, "the issuer %s does not answer as one: %w", i.URL, err)
	}
	c := &oauth2.Config{ClientID: i.Client, Endpoint: provider.Endpoint()}
	c.Endpoint.AuthStyle = oauth2.AuthStyleInParams // a client without a secret
	for _, scope := range scopes {
		if scope == oidc.ScopeOpenID || slices.Contains(can.Scopes, scope) {
			c.Scopes = append(c.Scopes, scope)
		}
	}
	return provider, c, nil
}

// Prompt is what a user has to do to log in.
type Prompt struct {
	Page string // to open in a browser, on any device
	Code string // to enter there
	Full string // the page with the code in it; empty: the issuer has none
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
		return Context{}, refusal(ctx, i, err)
	}
	show(Prompt{Page: begun.VerificationURI, Code: begun.UserCode, Full: begun.VerificationURIComplete})
	given, err := c.DeviceAccessToken(ctx, begun)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return Context{}, croft.Errorf(croft.Denied, "the code %s has expired: log in again", begun.UserCode)
	}
	if err != nil {
		return Context{}, refusal(ctx, i, err)
	}
	return Context{Issuer: i}.with(ctx, provider, given)
}

// with returns the context with what an issuer gave.
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

// refusal says why an issuer gives nothing, without what it was sent.
func refusal(ctx context.Context, i Issuer, err error) error {
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
	return croft.Errorf(croft.Denied, "the issuer %s gives no token: %s; run croft login again", i.URL, reason)
}

// early is how long before its end a token is renewed.
const early = 30 * time.Second

// Token returns the token of the context in a file, renewed if it has expired, or will in a moment. Of several
// processes one renews it: an issuer may take each refresh token once. Denied: it cannot be renewed. NotFound;
// Unavailable.
func Token(ctx context.Context, file string) (string, error) {
	c, err := Read(file)
	if err != nil || c.counts() {
		return c.Token, err
	}
	lock, err := os.OpenFile(file+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		defer lock.Close()
		err = filelock.Take(lock)
	}
	if err != nil {
		return "", croft.Errorf(croft.Unavailable, "renew the login: %w", err)
	}
	if c, err = Read(file); err != nil || c.counts() {
		return c.Token, err
	}
	if c.Refresh == "" {
		return "", croft.Errorf(croft.Denied, "the login at %s expired on %s: run croft login again", c.URL,
			c.Expires.Local().Format(time.DateTime))
	}
	provider, config, err := discover(ctx, c.Issuer)
	if err != nil {
		return "", err
	}
	given, err := config.TokenSource(ctx, &oauth2.Token{RefreshToken: c.Refresh}).Token()
	if err != nil {
		return "", refusal(ctx, c.Issuer, err)
	}
	if c, err = c.with(ctx, provider, given); err != nil {
		return "", err
	}
	return c.Token, c.Write(file)
}

// counts reports whether the token can be used as it is.
func (c Context) counts() bool { return c.Expires.IsZero() || time.Until(c.Expires) > early }
