package watch

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"croft"
)

// A Clock says how long this machine has run since a boot. All processes of the machine see the same clock, and it
// stands still while the machine is suspended, so a machine that slept finds nobody silent for it.
type Clock struct {
	Boot string
	Now  func() time.Duration
}

// SystemClock is the clock of this machine. Unavailable.
func SystemClock() (Clock, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return Clock{}, croft.Errorf(croft.Unavailable, "find out which boot of this machine it is: %w", err)
	}
	return Clock{strings.TrimSpace(string(boot)), func() time.Duration {
		var now unix.Timespec
		if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) != nil {
			panic("this kernel has no monotonic clock")
		}
		return time.Duration(now.Nano())
	}}, nil
}
