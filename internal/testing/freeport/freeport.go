// Package freeport finds free addresses for servers that must know where to listen before they start, in tests and
// benchmarks.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// The ports that are given. Linux takes those of outgoing connections from 32768 on
// (net.ipv4.ip_local_port_range): one of them could have taken a port of that range
// before its server listens.
const (
	lowest = 10000
	beyond = 32000
)

// given are the ports that this process had: it gets none twice.
var given sync.Map

// Address is one of a host, an IP address of this machine, where nobody listens.
func Address(host string) (string, error) {
	var err error
	for range 1000 {
		port := strconv.Itoa(lowest + rand.N(beyond-lowest))
		if _, had := given.LoadOrStore(port, true); had {
			continue
		}
		address := net.JoinHostPort(host, port)
		var l net.Listener
		if l, err = net.Listen("tcp", address); err == nil {
			return address, l.Close()
		}
	}
	return "", fmt.Errorf("find a free port on %s: %w", host, err)
}

// Addresses are several on the loopback interface.
func Addresses(n int) (all []string, err error) {
	for range n {
		address, err := Address("127.0.0.1")
		if err != nil {
			return nil, err
		}
		all = append(all, address)
	}
	return all, nil
}

// For is Address for a test, which ends where there is none.
func For(t interface {
	Helper()
	Fatal(...any)
}, host string) string {
	t.Helper()
	address, err := Address(host)
	if err != nil {
		t.Fatal(err)
	}
	return address
}
