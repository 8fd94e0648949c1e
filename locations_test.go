package croft_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"croft"
)

func TestParseNear(t *testing.T) {
	for _, c := range []struct {
		text, want string // "!": refused, with a part of the reason
		distance   int
		soft       bool
	}{
		{"web-1", "web-1", 0, true},
		{"s1/r1", "s1/r1", 0, true},
		{"web-1:host", "web-1:host", 0, false},
		{"web-1:rack", "web-1:rack", 1, false},
		{"web-1:2", "web-1:row", 2, false},
		{"web-1:site", "web-1:site", 3, false},
		{"web-1:4", "web-1:4", 4, false},
		{"web-1:1000001", "!a distance from 0 to 1000000", 0, false},
		{"web-1:-1", "!a distance from 0 to 1000000", 0, false},
		{"web-1:", "!after the colon", 0, false},
		{"web-1:rack:row", "!after the colon", 0, false},
		{":rack", "!name an instance, an aggregate, a host or a location", 0, false},
		{"", "!name an instance, an aggregate, a host or a location", 0, false},
	} {
		t.Run(c.text, func(t *testing.T) {
			n, err := croft.ParseNear(c.text)
			if part, refused := strings.CutPrefix(c.want, "!"); refused {
				if croft.KindOf(err) != croft.Invalid || !strings.Contains(err.Error(), part) {
					t.Errorf("got %v, %v, want that it is refused", n, err)
				}
				return
			}
			if err != nil || n.Text() != c.want || n.Distance != c.distance || n.Soft != c.soft {
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
		{"web:rack", 2, "is in the same row as web and is to be in the same rack"},
		{"web:row", 4, "is in another site than web and is to be in the same row"},
		{"web:host", 1, "is in the same rack as web and is to be there"},
	} {
		n, err := croft.ParseNear(c.text)
		if err != nil {
			t.Fatal(err)
		}
		n.Location = "s/r/k/h"
		err = n.Admit(c.distance, false)
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

func TestNearAndFarByATypeOfDistances(t *testing.T) {
	for _, c := range []struct {
		name      string
		near, far []string
		kind      string
		want      string // of the last one
		says      string // text of the refusal
	}{
		{"a level is not to be shared", nil, []string{"web:rack"}, "", "far web:rack", ""},
		{"the number for that", nil, []string{"web:2"}, "failure", "far web:rack", ""},
		{"a greater number", []string{"web:7"}, nil, "", "near web:7", ""},
		{"of another type", []string{"web:rack2"}, nil, "network", "", "after the colon"},
		{"a number of another type", []string{"web:2"}, []string{"db:3"}, "network", "far db:3 by network", ""},
		{"as near as there is room", []string{"web"}, nil, "network", "near web by network", ""},
		{"levels of another type", []string{"web:rack"}, nil, "network", "", "levels are of the type failure"},
		{"a type of nothing", nil, nil, "network", "", "says nothing without"},
		{"no type", []string{"web"}, nil, "a b", "", "not the name of a type"},
		{"far without a distance", nil, []string{"web"}, "", "", "a distance from 1 to 1000000"},
		{"far by 0", nil, []string{"web:0"}, "", "", "a distance from 1 to 1000000"},
		{"far from nothing", nil, []string{":3"}, "", "", "name an instance"},
	} {
		t.Run(c.name, func(t *testing.T) {
			all, err := croft.ParseNears(c.near, c.far, c.kind)
			if c.says != "" {
				if croft.KindOf(err) != croft.Invalid || !strings.Contains(err.Error(), c.says) {
					t.Errorf("got %v, want %q", err, c.says)
				}
				return
			}
			if err != nil || all[len(all)-1].String() != c.want {
				t.Fatalf("got %v, %v", all, err)
			}
			if kind, err := croft.NearType(all); err != nil || kind != strings.TrimPrefix(c.kind, "failure") {
				t.Errorf("the type is %q, %v", kind, err)
			}
		})
	}
	if _, err := croft.NearType([]croft.Near{{Type: "a"}, {Type: "b"}}); croft.KindOf(err) != croft.Invalid {
		t.Errorf("two types: %v", err)
	}
}

func TestWhatIsTooNear(t *testing.T) {
	for _, c := range []struct {
		near     croft.Near
		distance int
		stated   bool
		want     string
	}{
		{croft.Near{To: "web", Far: true, Distance: 2}, 2, false, ""},
		{croft.Near{To: "web", Far: true, Distance: 2}, 1, false,
			"is in the same rack as web and is not to be in the same rack"},
		{croft.Near{To: "web", Far: true, Distance: 2}, 1, true, "is nearer to web than 2 by failure"},
		{croft.Near{To: "web", Distance: 9, Type: "network"}, 10, true, "is farther from web than 9 by network"},
		{croft.Near{To: "web", Distance: 9, Type: "network"}, 9, true, ""},
	} {
		err := c.near.Admit(c.distance, c.stated)
		if c.want == "" && err != nil || c.want != "" && (err == nil || err.Error() != c.want) {
			t.Errorf("%v at %d: got %v, want %q", c.near, c.distance, err, c.want)
		}
	}
}

func TestDistancesAreKeptByPair(t *testing.T) {
	host := string(croft.NewHostID())
	all, err := croft.Distances{Type: "network"}.With(croft.Distance{A: "ssd", B: "s1/r1", Distance: 5})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []croft.Distance{{A: "s1/r1", B: "ssd", Distance: 7}, {A: host, B: "a", Distance: 0}} {
		if all, err = all.With(d); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Contains(all.Distances, croft.Distance{A: "s1/r1", B: "ssd", Distance: 7}) || len(all.Distances) != 2 {
		t.Errorf("got %v", all.Distances)
	}
	if names := all.Names(); !slices.Equal(names, []string{"a", "ssd"}) {
		t.Errorf("they name %v", names)
	}
	if less, there := all.Without("ssd", "s1/r1"); !there || len(less.Distances) != 1 {
		t.Errorf("got %v, %v", less, there)
	}
	if _, there := all.Without("ssd", "s1"); there {
		t.Error("removed what is not there")
	}
}

func TestDistancesThatAreRefused(t *testing.T) {
	full, err := croft.Distances{Type: "network"}, error(nil)
	for i := range croft.MaxDistanceNames {
		if full, err = full.With(croft.Distance{A: fmt.Sprint("a", i), B: "s/r"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		d    croft.Distance
		says string
	}{
		{"to itself", croft.Distance{A: "a", B: "a"}, "and itself is 0"},
		{"negative", croft.Distance{A: "a", B: "b", Distance: -1}, "from 0 to 1000000"},
		{"too great", croft.Distance{A: "a", B: "b", Distance: croft.MaxStatedDistance + 1}, "from 0 to 1000000"},
		{"to what is no name", croft.Distance{A: "a", B: "B b"}, "is no name of"},
		{"to nothing", croft.Distance{A: "a"}, "is no name of"},
		{"by more aggregates than a transaction may compare", croft.Distance{A: "one-more", B: "s/r"},
			"would name 33 aggregates"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := full.With(c.d); croft.KindOf(err) != croft.Invalid || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
}
