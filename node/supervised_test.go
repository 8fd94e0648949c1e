package node

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/internal/testing/patient"
)

// notifySocket replaces systemd's socket: the returned function returns the next message.
func notifySocket(t *testing.T) (next func() string) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	t.Setenv("NOTIFY_SOCKET", name)
	buffer := make([]byte, 4096)
	return func() string {
		t.Helper()
		_ = socket.SetReadDeadline(patient.Deadline(t))
		n, err := socket.Read(buffer)
		if err != nil {
			t.Fatalf("systemd is told nothing more: %v", err)
		}
		return string(buffer[:n])
	}
}

// until reads messages up to the first with this prefix, and returns the earlier ones.
func until(next func() string, prefix string) (before []string) {
	for {
		message := next()
		if strings.HasPrefix(message, prefix) {
			return before
		}
		before = append(before, message)
	}
}

func TestSystemdIsTold(t *testing.T) {
	next := notifySocket(t)
	t.Setenv("WATCHDOG_USEC", "40000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	ctx, end := context.WithCancel(t.Context())
	becomeReady, ended := make(chan bool), make(chan error)
	go func() {
		ended <- Supervised(ctx, slog.New(slog.DiscardHandler), func(ready func()) error {
			<-becomeReady
			ready()
			<-ctx.Done()
			return errors.New("what it ended with")
		})
	}()
	if before := until(next, "EXTEND_TIMEOUT_USEC=60000000"); !slices.Equal(before, []string{"STATUS=starts"}) {
		t.Errorf("first systemd is told %q", before)
	}
	until(next, "EXTEND_TIMEOUT_USEC=") // and again, for any duration of the start
	close(becomeReady)
	if before := until(next, "READY=1\n"); slices.Contains(before, "WATCHDOG=1") {
		t.Errorf("a sign of life for the watchdog before it was ready: %q", before)
	}
	until(next, "WATCHDOG=1")
	until(next, "WATCHDOG=1")
	end()
	until(next, "STOPPING=1\n")
	if err := <-ended; err == nil || err.Error() != "what it ended with" {
		t.Errorf("it ended with %v", err)
	}
}

func TestWithoutSystemdNobodyIsTold(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	t.Setenv("WATCHDOG_USEC", "1")
	want := errors.New("what it ended with")
	err := Supervised(t.Context(), slog.New(slog.DiscardHandler), func(ready func()) error { ready(); return want })
	if !errors.Is(err, want) {
		t.Errorf("it ended with %v", err)
	}
}

func TestAProcessThatHangsWhileItStopsEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		release := make(chan struct{})
		time.AfterFunc(time.Hour, stop)
		start := time.Now()
		err := stopInTime(ctx, func() error { <-release; return nil })
		if croft.KindOf(err) != croft.Unavailable {
			t.Errorf("got %v", err)
		}
		if late := time.Since(start) - time.Hour; late != stopPatience {
			t.Errorf("it ended %s after the signal, want %s", late, stopPatience)
		}
		close(release)
	})
}

func TestAProcessThatStopsInOrderReturnsItsOwnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		stop()
		want := errors.New("own")
		if err := stopInTime(ctx, func() error { time.Sleep(stopPatience / 2); return want }); !errors.Is(err, want) {
			t.Errorf("got %v", err)
		}
	})
}
