package wording_test

import (
	"testing"
	"time"

	"croft/internal/wording"
)

func TestADurationHasNoUnitThatIsZero(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 2160 * time.Hour: "90d", 36 * time.Hour: "1d12h", 2 * time.Hour: "2h", 90 * time.Second: "1m30s",
		time.Minute: "1m", 30 * time.Second: "30s", 1500 * time.Millisecond: "1s", 10 * time.Millisecond: "10ms",
		-time.Hour: "-1h",
	} {
		if got := wording.Duration(d); got != want {
			t.Errorf("%d ns is written as %q, want %q", d, got, want)
		}
	}
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
