package croft_test

import (
	"slices"
	"strings"
	"testing"

	"croft"
)

func TestAChangeOfAnAggregate(t *testing.T) {
	a, b, c := croft.HostID("a"), croft.HostID("b"), croft.HostID("c")
	note, long, control := "new", strings.Repeat("ä", croft.MaxAggregateNote+1), "a\nb"
	five, six := int64(5), int64(6)
	var many []croft.HostID
	for range croft.MaxAggregateChange + 1 {
		many = append(many, croft.NewHostID())
	}
	before := croft.Aggregate{Name: "ssd", Note: "old", Hosts: []croft.HostID{b}, Generation: 5}
	for _, test := range []struct {
		name   string
		change croft.AggregateChange
		want   []croft.HostID
		kind   croft.Kind
		says   string
	}{
		{"nothing changes nothing", croft.AggregateChange{}, []croft.HostID{b}, "", ""},
		{"hosts are kept in order, each once", croft.AggregateChange{Add: []croft.HostID{c, a, b, c}},
			[]croft.HostID{a, b, c}, "", ""},
		{"one that is not in it is removed already", croft.AggregateChange{Remove: []croft.HostID{a}},
			[]croft.HostID{b}, "", ""},
		{"one is removed and another added", croft.AggregateChange{Add: []croft.HostID{a}, Remove: []croft.HostID{b}},
			[]croft.HostID{a}, "", ""},
		{"one is both added and removed", croft.AggregateChange{Add: []croft.HostID{a}, Remove: []croft.HostID{a}}, nil,
			croft.Invalid, "host a is to be added and to be removed"},
		{"the generation fits", croft.AggregateChange{Note: &note, Generation: &five}, []croft.HostID{b}, "", ""},
		{"the generation is another", croft.AggregateChange{Note: &note, Generation: &six}, nil, croft.Conflict,
			"has generation 5, not 6"},
		{"the note is long", croft.AggregateChange{Note: &long}, nil, croft.Invalid, "257 characters: it may have 256"},
		{"the note has two lines", croft.AggregateChange{Note: &control}, nil, croft.Invalid, "cannot be printed"},
		{"many hosts at once", croft.AggregateChange{Add: many}, nil, croft.Invalid, "name at most 50 at once"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := test.change.Apply(before)
			if croft.KindOf(err) != test.kind || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Fatalf("got %v, want %q in an error of kind %q", err, test.says, test.kind)
			}
			if err == nil && !slices.Equal(got.Hosts, test.want) {
				t.Errorf("got %v, want %v", got.Hosts, test.want)
			}
			if !slices.Equal(before.Hosts, []croft.HostID{b}) {
				t.Fatalf("the aggregate before is changed: %v", before.Hosts)
			}
		})
	}
}

func TestNamesOfAggregates(t *testing.T) {
	for name, valid := range map[string]bool{"ssd": true, "a": true, "rack-7": true, "": false, "a.b": false,
		"a/b": false, "-a": false, "a-": false, "SSD": false, "site=a": false, "!a": false, "in:a": false, "a,b": false,
		strings.Repeat("a", 63): true, strings.Repeat("a", 64): false} {
		if err := croft.CheckAggregateName(name); (err == nil) != valid {
			t.Errorf("%q: %v", name, err)
		}
	}
}
