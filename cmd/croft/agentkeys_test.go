package main

import (
	"crypto/ed25519"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh/agent"

	"croft/schedule/sshkeys"
)

// serveAgent runs an SSH agent with these keys, given by their comments.
func serveAgent(t *testing.T, comments ...string) {
	t.Helper()
	ring := agent.NewKeyring()
	for _, comment := range comments {
		_, private, err := ed25519.GenerateKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := ring.Add(agent.AddedKey{PrivateKey: private, Comment: comment}); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "agent")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer c.Close()
				_ = agent.ServeAgent(ring, c) // ends with the client's end
			})
		}
	})
	t.Cleanup(func() { l.Close(); work.Wait() })
	t.Setenv("SSH_AUTH_SOCK", path)
}

func TestKeysOfTheAgent(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Run("they are taken before the files", func(t *testing.T) {
		serveAgent(t, "one", "two")
		for _, word := range []string{"auto", "agent"} {
			keys, names, err := sshkeys.Read([]string{word})
			if err != nil || len(names) > 0 || len(keys) != 2 || !strings.HasSuffix(keys[0], " one") || !strings.HasSuffix(keys[1], " two") {
				t.Errorf("%s gives %q, the names %q, %v", word, keys, names, err)
			}
		}
	})
	t.Run("an agent without keys is none", func(t *testing.T) {
		serveAgent(t)
		if keys, _, err := sshkeys.Read([]string{"auto"}); err != nil || len(keys) > 0 {
			t.Errorf("auto gives %q, %v", keys, err)
		}
		if _, _, err := sshkeys.Read([]string{"agent"}); err == nil || !strings.Contains(err.Error(), "ssh-add") {
			t.Errorf("agent gives %v", err)
		}
	})
}

func TestNamesOfKeysAreLeftForTheCloud(t *testing.T) {
	t.Chdir(t.TempDir())
	keys, names, err := sshkeys.Read([]string{"laptop", key, "desk"})
	if err != nil || !slices.Equal(names, []string{"laptop", "desk"}) || !slices.Equal(keys, []string{key}) {
		t.Errorf("keys %q, names %q, %v", keys, names, err)
	}
}
