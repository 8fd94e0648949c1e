// Package wording formats numbers and durations for sentences.
package wording

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Count formats a number with its noun: 1 cluster, 2 clusters.
func Count[N int | int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// day is the largest unit: months and years have no fixed length.
const day = 24 * time.Hour

// Duration formats a duration without units that are zero: 90d, 1d12h, 2h, 1m30s. It uses days, and omits fractions of
// a second if the duration is a second or more.
func Duration(d time.Duration) string {
	if d < 0 {
		return "-" + Duration(-max(d, -math.MaxInt64)) // the least duration has no positive counterpart
	}
	if d < time.Second {
		return d.String()
	}
	var b strings.Builder
	for _, unit := range []struct {
		length time.Duration
		name   string
	}{{day, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}} {
		if n := d / unit.length; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, unit.name)
			d -= n * unit.length
		}
	}
	return b.String()
}

// Exact writes a measured duration like Duration, but keeps the fraction of a second, as in 1m1.5s.
func Exact(d time.Duration) string {
	whole := d.Truncate(time.Minute)
	if rest := d - whole; d >= time.Second && rest%time.Second != 0 {
		return strings.TrimPrefix(Duration(whole), "0s") + rest.String()
	}
	return Duration(d)
}

// Age formats how long ago something was in its largest unit, rounded down: 5s, 3m, 47h, 2d.
func Age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 2*day:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// ForPrograms writes a duration in Go's notation, for files and requests. Programs of earlier versions can parse it.
func ForPrograms(d time.Duration) string { return d.String() }

// ParseDuration parses the forms of Duration and of time.ParseDuration: 90d, 1d12h, 1h30m, 1.5h. A day has 24 hours;
// days come first and are a whole number.
func ParseDuration(text string) (time.Duration, error) {
	rest, sign := text, time.Duration(1)
	if after, negative := strings.CutPrefix(text, "-"); negative {
		rest, sign = after, -1
	}
	days, rest, found := strings.Cut(rest, "d")
	if !found {
		return time.ParseDuration(text)
	}
	n, err := strconv.ParseUint(days, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("%q is no duration", text)
	}
	d := time.Duration(n) * day
	if rest != "" {
		more, err := time.ParseDuration(rest)
		if err != nil || more < 0 {
			return 0, fmt.Errorf("%q is no duration", text)
		}
		d += more
	}
	return sign * d, nil
}

// List joins words for a sentence: a, b and c.
func List(all []string) string {
	if len(all) < 2 {
		return strings.Join(all, "")
	}
	return strings.Join(all[:len(all)-1], ", ") + " and " + all[len(all)-1]
}
