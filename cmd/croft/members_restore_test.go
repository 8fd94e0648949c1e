package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"croft"
	"croft/node"
	"croft/node/settings"
)

// A cloud that three hosts serve loses the data of two, and continues from a snapshot on the first, by the
// documented commands; the others join again.
func TestACloudOfThreeMembersIsRestoredFromASnapshot(t *testing.T) {
	soakOnly(t)
	address := reachable(t)
	first := serverSettings(t, "first", address)
	stops := []func() (int, string){startHost(t, first)}
	t.Setenv("CROFT_STATE_DIR", first.StateDir)
	token, _ := command(t, croft.ExitOK, "token", "create")
	others := []settings.Settings{serverSettings(t, "second", address), serverSettings(t, "third", address)}
	for _, s := range others {
		stops = append(stops, serveToo(t, s, token))
	}
	awaitRoles(t, "first ready member", "second ready member", "third ready member")
	request(t, "stays")
	file := filepath.Join(t.TempDir(), "croft.db")
	command(t, croft.ExitOK, "etcd", "snapshot", file)
	request(t, "later")
	for _, stop := range stops {
		if code, said := stop(); code != croft.ExitOK {
			t.Fatalf("exit code %d: %s", code, said)
		}
	}
	for _, s := range []settings.Settings{first, others[0]} { // the damage
		if err := os.RemoveAll(node.EtcdDir(s.StateDir)); err != nil {
			t.Fatal(err)
		}
	}
	command(t, croft.ExitOK, "etcd", "restore", file, "--state-dir", first.StateDir)

	startHost(t, first)
	startHost(t, others[0])
	third := others[1]
	stopThird := startHost(t, third)
	awaitRoles(t, "first ready member", "second ready member", "third ready missing")
	if _, listed := command(t, croft.ExitOK, "host", "list"); !strings.Contains(listed,
		"let it join again with croft up --join - --etcd-member") {
		t.Errorf("it is not said what to do about the third:\n%s", listed)
	}
	again, _ := command(t, croft.ExitOK, "token", "create", "--host", "third")
	stopThird()
	serveToo(t, third, again)
	awaitRoles(t, "first ready member", "second ready member", "third ready member")
	if states := instanceStates(t); strings.Join(states, ", ") != "stays running" {
		t.Errorf("instances: %q", states)
	}
	found, _ := command(t, 1, "audit")
	if strings.Count(found, "\n") > 0 || !strings.Contains(found, "guest") {
		t.Errorf("the audit finds:\n%s\nwant the guest that was made since, and nothing else", found)
	}
	request(t, "afterwards")
}
