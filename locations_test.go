package croft_test

import (
	"strings"
	"testing"

	"croft"
)

func TestParseNear(t *testing.T) {
	for _, c := range []struct {
		text, want string // "!": refused, and a part of why
		distance   int
		soft       bool
	}{
		{"web-1", "web-1", 0, true},
		{"s1/r1", "s1/r1", 0, true},
		{"web-1:host", "web-1:host", 0, false},
		{"web-1:rack", "web-1:rack", 1, false},
		{"web-1:2", "web-1:row", 2, false},
		{"web-1:site", "web-1:site", 3, false},
		{"web-1:4", "!a distance from 0 to 3", 0, false},
		{"web-1:-1", "!a distance from 0 to 3", 0, false},
		{"web-1:", "!after the colon", 0, false},
		{"web-1:rack:row", "!after the colon", 0, false},
		{":rack", "!name an instance, a host or a location", 0, false},
		{"", "!name an instance, a host or a location", 0, false},
	} {
		t.Run(c.text, func(t *testing.T) {
			n, err := croft.ParseNear(c.text)
			if part, refused := strings.CutPrefix(c.want, "!"); refused {
				if croft.KindOf(err) != croft.Invalid || !strings.Contains(err.Error(), part) {
					t.Errorf("got %v, %v, want that it is refused", n, err)
				}
				return
			}
			if err != nil || n.String() != c.want || n.Distance != c.distance || n.Soft != c.soft {
				t.Errorf("got %+v, %v", n, err)
			}
		})
	}
}

func TestWhatIsTooFar(t *testing.T) {
	for _, c := range []struct {
		text     string
		distance int
		want     string // "": near enough
	}{
		{"web", 4, ""},
		{"web:rack", 1, ""},
		{"web:rack", 2, "is in the same row as web, s/r/k/h, and is to be in the same rack"},
		{"web:row", 4, "is in another site than web, s/r/k/h, and is to be in the same row"},
		{"web:host", 1, "is in the same rack as web, s/r/k/h, and is to be there"},
	} {
		n, err := croft.ParseNear(c.text)
		if err != nil {
			t.Fatal(err)
		}
		n.Location = "s/r/k/h"
		err = n.Admit(c.distance)
		if c.want == "" && err != nil ||
			c.want != "" && (croft.KindOf(err) != croft.NoCapacity || err.Error() != c.want) {
			t.Errorf("%s at %d: got %v, want %q", c.text, c.distance, err, c.want)
		}
	}
}

func TestParseLevel(t *testing.T) {
	for _, level := range croft.Levels {
		if got, err := croft.ParseLevel(string(level)); err != nil || got != level {
			t.Errorf("got %s, %v, want %s", got, err, level)
		}
	}
	if _, err := croft.ParseLevel("room"); croft.KindOf(err) != croft.Invalid {
		t.Errorf("got %v", err)
	}
}
