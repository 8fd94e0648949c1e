package node

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"testing"

	"croft"
	"croft/node/settings"
)

// simulated returns the settings of a host without libvirt, whose servers use any free port.
func simulated(t *testing.T) settings.Settings {
	t.Helper()
	s := settings.Defaults()
	s.StateDir, s.Hypervisor, s.Host.Name = filepath.Join(t.TempDir(), "state"), "sim", "one"
	s.Etcd.Listen, s.Placement.Listen, s.API.Listen = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	return s
}

func TestAStopDuringAStartIsNoFault(t *testing.T) {
	s := simulated(t)
	for _, when := range []string{"at the first start", "when there is a state"} {
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if err := Up(ctx, s, slog.New(slog.DiscardHandler), func() { t.Error("it is ready") }); err != nil {
			t.Errorf("%s: %v", when, err)
		}
		ctx, stop = context.WithCancel(t.Context())
		if err := Up(ctx, s, slog.New(slog.DiscardHandler), stop); err != nil {
			t.Errorf("%s, once it is ready: %v", when, err)
		}
		stop()
	}
}

func TestAFaultDuringAStart(t *testing.T) {
	s := simulated(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s.API.Listen = l.Addr().String()
	err = Up(t.Context(), s, slog.New(slog.DiscardHandler), func() { t.Error("it is ready") })
	if croft.KindOf(err) != croft.Conflict {
		t.Errorf("got %v, want that the address is in use", err)
	}
}
