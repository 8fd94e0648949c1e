package watch

import (
	"os"
	"strings"

	"croft"
)

// LocalBeat returns a beat of this machine. Its count is the time since the boot, so it increases even if several
// processes send beats. Unavailable: /proc cannot be read.
func LocalBeat(clock Clock) (Beat, error) {
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return Beat{}, croft.Errorf(croft.Unavailable, "find out this machine's load: %w", err)
	}
	uptime, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return Beat{}, croft.Errorf(croft.Unavailable, "find out since when this machine runs: %w", err)
	}
	since, _, _ := strings.Cut(string(uptime), " ")
	average, _, _ := strings.Cut(string(load), " ")
	return ParseBeat(strings.Join([]string{"beat", clock.Boot, strings.ReplaceAll(since, ".", ""), absent, average,
		"0"}, " "))
}
