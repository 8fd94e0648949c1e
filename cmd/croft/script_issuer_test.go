package main

import (
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"croft/internal/testing/patient"
	"croft/tenant/access/oidc/oidctest"
)

type issuerKey struct{}

// scriptIssuer is the script's OpenID Connect issuer, if it has one.
type scriptIssuer struct{ *oidctest.Issuer }

// issuer start LIFE runs an OpenID Connect issuer whose tokens are valid for that time; $ISSUER is its URL. issuer
// approve NAME [GROUP...] logs the user NAME in, as in the browser, as soon as a command waits for that; issuer deny
// refuses it. issuer forget ends all refresh tokens.
func issuer(ts *testscript.TestScript, _ bool, args []string) {
	i := ts.Value(issuerKey{}).(*scriptIssuer)
	switch args[0] {
	case "start":
		life, err := time.ParseDuration(args[1])
		ts.Check(err)
		i.Issuer = oidctest.Start(scriptTB{ts: ts})
		i.Life = life
		ts.Setenv("ISSUER", i.URL)
	case "approve":
		code := waitingCode(ts, i)
		i.Approve(code, oidctest.User{Name: args[1], Groups: args[2:]})
	case "deny":
		i.Deny(waitingCode(ts, i))
	case "forget":
		i.Forget()
	default:
		ts.Fatalf("usage: issuer start LIFE, approve NAME, deny or forget")
	}
}

// waitingCode returns the code of the one login in progress.
func waitingCode(ts *testscript.TestScript, i *scriptIssuer) string {
	for deadline := time.Now().Add(patient.Longest); ; <-time.After(20 * time.Millisecond) {
		if codes := i.Codes(); len(codes) == 1 {
			return codes[0]
		}
		if time.Now().After(deadline) {
			ts.Fatalf("nobody logs in: %q", i.Codes())
		}
	}
}
