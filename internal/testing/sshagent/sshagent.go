// Package sshagent runs SSH agents for tests.
package sshagent

import (
	"net"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh/agent"
)

// Serve serves an agent with these keys until the test ends, and returns its socket.
func Serve(t *testing.T, keys ...agent.AddedKey) string {
	t.Helper()
	ring := agent.NewKeyring()
	for _, key := range keys {
		if err := ring.Add(key); err != nil {
			t.Fatal(err)
		}
	}
	socket := filepath.Join(t.TempDir(), "agent")
	l, err := net.Listen("unix", socket)
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
				_ = agent.ServeAgent(ring, c) // until its client has disconnected
				_ = c.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		work.Wait()
	})
	return socket
}
