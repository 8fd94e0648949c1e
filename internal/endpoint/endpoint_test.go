package endpoint_test

import (
	"strings"
	"testing"

	"croft/internal/endpoint"
)

func TestWhatListensEverywhereIsToldByAnAddress(t *testing.T) {
	own := endpoint.OwnAddresses()
	if len(own) == 0 {
		t.Skip("this machine has no address but the loopback interface's")
	}
	if got := endpoint.Outward("http://0.0.0.0:2379"); got != "http://"+own[0]+":2379" && !strings.Contains(got,
		"["+own[0]+"]") {
		t.Errorf("what listens everywhere is told to be at %s", got)
	}
	if got := endpoint.Outward("http://127.0.0.1:2379"); got != "http://127.0.0.1:2379" {
		t.Errorf("an address of one interface became %s", got)
	}
}
