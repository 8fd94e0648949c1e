package watch

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"croft"
)

// A Clock tells how long this machine has run since its boot. All processes of the machine see the same clock. It
// continues while the machine is suspended. It stops while a virtual machine is paused, which no process inside can
// detect: no lease depends on this clock alone (see Store.witnessed).
type Clock struct {
	Boot string
	Now  func() time.Duration

	// Slept returns how long the machine was suspended since its boot. nil: never.
	Slept func() time.Duration
}

// SystemClock returns the clock of this machine. Unavailable: the boot id cannot be read.
func SystemClock() (Clock, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return Clock{}, croft.Errorf(croft.Unavailable, "find out which boot of this machine it is: %w", err)
	}
	return Clock{
		Boot:  strings.TrimSpace(string(boot)),
		Now:   func() time.Duration { return kernelClock(unix.CLOCK_BOOTTIME) },
		Slept: func() time.Duration { return kernelClock(unix.CLOCK_BOOTTIME) - kernelClock(unix.CLOCK_MONOTONIC) },
	}, nil
}

func kernelClock(id int32) time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(id, &now); err != nil {
		panic("read a clock of the kernel: " + err.Error())
	}
	return time.Duration(now.Nano())
}

// slept returns how long the machine was suspended since its boot, in whole seconds.
func (c Clock) slept() time.Duration {
	if c.Slept == nil {
		return 0
	}
	return c.Slept().Truncate(time.Second)
}
