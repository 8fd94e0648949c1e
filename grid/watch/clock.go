package watch

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"croft"
)

// A Clock says how long this machine has run since a boot. All processes of the machine see the same clock. It goes on
// while the machine is suspended. It stands still while a virtual machine is paused, which nothing inside can see: no
// lease depends on this clock alone (see Store.witnessed).
type Clock struct {
	Boot string
	Now  func() time.Duration

	// Slept says for how much of that time the machine was suspended. nil: never.
	Slept func() time.Duration
}

// SystemClock is the clock of this machine. Unavailable.
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

// slept says for how long the machine was suspended since its boot, in whole seconds.
func (c Clock) slept() time.Duration {
	if c.Slept == nil {
		return 0
	}
	return c.Slept().Truncate(time.Second)
}
