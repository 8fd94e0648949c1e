// Package freeport finds free addresses for servers that must know their address before they start, in tests and
// benchmarks.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// The range of ports. It ends below 32768, where Linux takes ports of outgoing connections from
// (net.ipv4.ip_local_port_range): a connection could take such a port before the server listens on it.
const (
	lowest = 10000
	beyond = 32000
)

// given are the ports already returned in this process; none is returned twice.
var given sync.Map

// Address returns an unused address of host, which is an IP address of this machine.
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

// Addresses returns several addresses on the loopback interface.
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

// For is like Address, for a test, which fails if there is no free address.
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
