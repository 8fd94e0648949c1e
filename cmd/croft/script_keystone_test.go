package main

import (
	"fmt"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"croft/placementclient/keystone/keystonetest"
)

// startKeystone [URL...] runs a Keystone with the users nova (admin), demo (member) and watcher (reader of the
// system), whose catalogue has the URLs as Placement, and writes clouds.yaml with a cloud for each. $NOVA and its
// like are their tokens.
func startKeystone(ts *testscript.TestScript, _ bool, args []string) {
	tb := scriptTB{ts: ts}
	k := keystonetest.Start(tb)
	clouds := "clouds:\n"
	for _, u := range []keystonetest.User{
		{Name: "nova", Password: "nova-secret", Project: "service", Roles: []string{"admin", "member", "reader"}},
		{Name: "demo", Password: "demo-secret", Project: "demo", Roles: []string{"member", "reader"}},
		{Name: "watcher", Password: "watcher-secret", Roles: []string{"reader"}},
	} {
		k.Add(u)
		scope := "system_scope: all"
		if u.Project != "" {
			scope = "project_name: " + u.Project
		}
		clouds += fmt.Sprintf("  %s: {region_name: one, auth: {auth_url: '%s', username: %s, password: %s, %s}}\n",
			u.Name, k.URL, u.Name, u.Password, scope)
	}
	for _, url := range args {
		k.Offer(keystonetest.Endpoint{Region: "one", Interface: "public", URL: url})
	}

	ts.Setenv("NOVA", k.Token(tb, "nova"))
	ts.Setenv("DEMO", k.Token(tb, "demo"))
	ts.Setenv("WATCHER", k.Token(tb, "watcher"))
	ts.Check(os.WriteFile(ts.MkAbs("clouds.yaml"), []byte(clouds), 0o600))
}

// scriptTB is the part of a testing.TB that a script provides.
type scriptTB struct {
	testing.TB
	ts *testscript.TestScript
}

func (s scriptTB) Helper()                        {}
func (s scriptTB) Cleanup(f func())               { s.ts.Defer(f) }
func (s scriptTB) Fatalf(format string, a ...any) { s.ts.Fatalf(format, a...) }
