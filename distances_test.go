package croft_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"croft"
)

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
