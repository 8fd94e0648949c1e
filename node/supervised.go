package node

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"croft"
	"croft/internal/delay"
	"croft/internal/wording"
)

// startPatience is how long systemd waits for the next notification of a process that is not ready yet. A start
// may take any time (etcd is down, another agent has the host), but must not hang.
const startPatience = time.Minute

// stopPatience bounds how long a process may take to stop. It is less than systemd's TimeoutStopSec.
const stopPatience = 30 * time.Second

// Supervised runs run until ctx ends, and waits at most stopPatience for its end. If systemd started the process,
// Supervised notifies it when the process is ready and when it starts to stop, and more often than its watchdog
// requires.
func Supervised(ctx context.Context, log *slog.Logger, run func(ready func()) error) error {
	if os.Getenv("NOTIFY_SOCKET") == "" {
		return stopInTime(ctx, func() error { return run(func() {}) })
	}
	s := &supervisor{log: log, every: startPatience / 4}
	if patience, err := daemon.SdWatchdogEnabled(false); err != nil {
		log.Warn("systemd's watchdog is not understood, and gets no signs of life", "err", err)
	} else if patience > 0 {
		s.every = min(s.every, patience/4)
	}
	p := NewParts()
	p.Start(ctx, "signs of life for systemd", s.beat)
	stop := context.AfterFunc(ctx, func() { s.tell(daemon.SdNotifyStopping + "\nSTATUS=ending; guests go on running") })
	defer stop()
	err := stopInTime(ctx, func() error {
		return run(func() {
			s.ready.Store(true)
			s.tell(daemon.SdNotifyReady + "\nSTATUS=takes requests")
		})
	})
	_ = p.End() // beat returns no errors
	return err
}

// stopInTime returns when run has returned, or stopPatience after ctx ended: in the latter case something in the
// process hangs, and only the end of the process stops it. Guests and stored data survive that as they survive a crash.
func stopInTime(ctx context.Context, run func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- run() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	late := time.NewTimer(stopPatience)
	defer late.Stop()
	select {
	case err := <-ended:
		return err
	case <-late.C:
		return croft.Errorf(croft.Unavailable,
			"stop in order: a part still runs after %s, and ends with the process; nothing needs to be done",
			wording.Duration(stopPatience))
	}
}

// supervisor notifies systemd.
type supervisor struct {
	log   *slog.Logger
	every time.Duration
	ready atomic.Bool
}

// beat notifies systemd until ctx ends. A process that is suspended, or no longer runs goroutines, sends nothing.
func (s *supervisor) beat(ctx context.Context) error {
	s.tell("STATUS=starts")
	s.sign(ctx)
	delay.Every(ctx, s.every, s.sign)
	return nil
}

// sign notifies the watchdog of systemd.
func (s *supervisor) sign(context.Context) {
	if s.ready.Load() {
		s.tell(daemon.SdNotifyWatchdog)
	} else {
		s.tell(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", startPatience.Microseconds()))
	}
}

func (s *supervisor) tell(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		s.log.Warn("systemd was not notified", "state", state, "err", err)
	}
}
