package wording_test

import (
	"math"
	"testing"
	"time"

	"croft/internal/wording"
)

func TestADurationHasNoUnitThatIsZero(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 2160 * time.Hour: "90d", 36 * time.Hour: "1d12h", 2 * time.Hour: "2h", 90 * time.Second: "1m30s",
		time.Minute: "1m", 30 * time.Second: "30s", 1500 * time.Millisecond: "1s", 10 * time.Millisecond: "10ms",
		-time.Hour: "-1h", math.MinInt64: "-106751d23h47m16s",
	} {
		if got := wording.Duration(d); got != want {
			t.Errorf("%d ns is written as %q, want %q", d, got, want)
		}
	}
}

func TestAMeasuredDurationKeepsTheFractionOfASecond(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 10 * time.Millisecond: "10ms", 1500 * time.Millisecond: "1.5s", 61500 * time.Millisecond: "1m1.5s",
		24*time.Hour + 1500*time.Millisecond: "1d1.5s", time.Minute + 500*time.Millisecond: "1m500ms", time.Hour: "1h",
		-1500 * time.Millisecond: "-1s",
	} {
		if got := wording.Exact(d); got != want {
			t.Errorf("%d ns is written as %q, want %q", d, got, want)
		}
	}
}

func TestADurationIsReadAsItIsWritten(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"90d": 2160 * time.Hour, "1d12h": 36 * time.Hour, "1d1m": 24*time.Hour + time.Minute, "-1d": -24 * time.Hour,
		"1h30m": 90 * time.Minute, "1.5h": 90 * time.Minute, "0s": 0, "0d": 0,
	} {
		if got, err := wording.ParseDuration(text); err != nil || got != want {
			t.Errorf("%q is read as %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "d", "1d-1h", "1.5d", "1h1d", "99999999d", "1dd", "+1d", "1 d", "--1d"} {
		if got, err := wording.ParseDuration(text); err == nil {
			t.Errorf("%q is read as %s", text, got)
		}
	}
}

func FuzzParseDuration(f *testing.F) {
	f.Add("1d12h")
	f.Add("-90d1s")
	f.Fuzz(func(t *testing.T, text string) {
		d, err := wording.ParseDuration(text)
		if err != nil || d%time.Second != 0 {
			return
		}
		if again, err := wording.ParseDuration(wording.Duration(d)); err != nil || again != d {
			t.Errorf("%q is %s, which is written as %q and read as %s, %v", text, d, wording.Duration(d), again, err)
		}
	})
}

func TestANumberHasItsNoun(t *testing.T) {
	for n, want := range map[int]string{0: "0 slaves", 1: "1 slave", 2: "2 slaves"} {
		if got := wording.Count(n, "slave"); got != want {
			t.Errorf("%d is written as %q, want %q", n, got, want)
		}
	}
}

func TestAListIsPartOfASentence(t *testing.T) {
	for want, all := range map[string][]string{"": nil, "a": {"a"}, "a and b": {"a", "b"},
		"a, b and c": {"a", "b", "c"}} {
		if got := wording.List(all); got != want {
			t.Errorf("%q is written as %q, want %q", all, got, want)
		}
	}
}

func TestAgeHasTheLargestUnit(t *testing.T) {
	for d, want := range map[time.Duration]string{-time.Second: "0s", 59 * time.Second: "59s", time.Minute: "1m",
		59*time.Minute + 59*time.Second: "59m", time.Hour: "1h", 47*time.Hour + 59*time.Minute: "47h",
		48 * time.Hour: "2d"} {
		if got := wording.Age(d); got != want {
			t.Errorf("%v is %s, want %s", d, got, want)
		}
	}
}
