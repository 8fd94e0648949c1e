package freeport_test

import (
	"net"
	"testing"

	"croft/internal/testing/freeport"
)

func TestAddressesCanBeListenedAtAndDiffer(t *testing.T) {
	all, err := freeport.Addresses(50)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, address := range append(all, freeport.For(t, "127.0.0.2")) {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Error(err)
			continue
		}
		defer l.Close()
		if _, port, _ := net.SplitHostPort(address); seen[port] || len(port) != 5 || port >= "32768" {
			t.Errorf("%s: its port was given before, or is one of outgoing connections", address)
		} else {
			seen[port] = true
		}
	}
}

func TestAHostThatIsNotThisMachineHasNone(t *testing.T) {
	if address, err := freeport.Address("203.0.113.1"); err == nil {
		t.Errorf("got %s", address)
	}
}
