package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"croft"
	"croft/node"
	"croft/node/settings"
	"croft/trust"
	"croft/trust/pki"
)

// soakOnly skips a long test unless a soak is configured.
func soakOnly(t *testing.T) {
	t.Helper()
	if os.Getenv("CROFT_SOAK") == "" {
		t.Skip("make soak runs it: CROFT_SOAK is not set")
	}
}

// serveToo makes a host join that will also serve etcd and Placement, and starts it.
func serveToo(t *testing.T, s settings.Settings, token string) (stop func() (int, string)) {
	t.Helper()
	return joinAs(t, s, token, true)
}

// In a strict cloud only hosts with a member's token serve etcd, and only they have certificates for it.
// Everything continues while the first is away, even for a host that does not serve, and no forgotten member
// remains.
func TestHostsOfAStrictCloudServeEtcdWhereTheTokenSaysSo(t *testing.T) {
	soakOnly(t)
	address := reachable(t)
	first := serverSettings(t, "first", address)
	first.Trust = trust.Strict
	stop := startHost(t, first)
	t.Setenv("CROFT_STATE_DIR", first.StateDir)
	plain, _ := command(t, croft.ExitOK, "token", "create")
	token, _ := command(t, croft.ExitOK, "token", "create", "--etcd-member")

	second, third, fourth := serverSettings(t, "second", address), serverSettings(t, "third", address),
		joining(t, "fourth")
	err := node.Join(t.Context(), second, plain, true, &bytes.Buffer{})
	if croft.KindOf(err) != croft.Invalid || !strings.Contains(err.Error(), "croft token create --etcd-member") {
		t.Errorf("with a token that was not made for it: %v", err)
	}
	serveToo(t, second, token)
	stopThird := serveToo(t, third, token)
	joinWith(t, fourth, token) // the token permits hosts to serve but does not require it
	if trust.Certificate(fourth.StateDir, pki.Etcd).Exists() {
		t.Error("a host that does not serve etcd has a certificate of it")
	}
	if j, err := trust.ReadMembership(fourth.StateDir); err != nil || !j.IsStrict() {
		t.Errorf("it joined as %+v, %v", j, err)
	}
	awaitRoles(t, "first ready member", "fourth ready ", "second ready member", "third ready member")
	command(t, croft.ExitOK, "host", "drain", "first")
	command(t, croft.ExitOK, "host", "drain", "second")
	command(t, croft.ExitOK, "host", "drain", "third")
	request(t, "strict")
	command(t, croft.ExitOK, "host", "enable", "third")

	await(t, "the fourth knows three gates", func() bool {
		text, _ := os.ReadFile(filepath.Join(fourth.StateDir, "gates"))
		return len(strings.Fields(string(text))) == 3
	})
	if code, said := stop(); code != croft.ExitOK {
		t.Fatalf("the first ended with %d: %s", code, said)
	}
	t.Setenv("CROFT_STATE_DIR", second.StateDir)
	awaitRoles(t, "first silent silent", "fourth ready ", "second drained member", "third ready member")
	request(t, "meanwhile")
	command(t, croft.ExitOK, "schedule", "stop", "--wait", "strict")
	startHost(t, first)
	awaitRoles(t, "first drained member", "fourth ready ", "second drained member", "third ready member")
	if states := instanceStates(t); strings.Join(states, ", ") != "meanwhile running, strict stopped" {
		t.Errorf("instances once the first is back: %q", states)
	}
	command(t, croft.ExitOK, "schedule", "destroy", "--wait", "meanwhile", "strict")
	stopThird()
	command(t, croft.ExitOK, "host", "forget", "--force", "third")
	awaitRoles(t, "first drained member", "fourth ready ", "second drained member")
	command(t, croft.ExitOK, "audit")
}
