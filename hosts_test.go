package croft_test

import (
	"errors"
	"fmt"
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

func TestBoundsAreReadInOneForm(t *testing.T) {
	tooMany := "in:a"
	for i := range 16 {
		tooMany += fmt.Sprint(",a", i)
	}
	for _, c := range []struct{ name, text, want, says string }{
		{"one", "ssd", "ssd", "in ssd"},
		{"one of several, in order and each once", "in:b, a,b", "in:a,b", "in one of a, b"},
		{"one of one", "in:a", "a", "in a"},
		{"none of one", "!a", "!a", "not in a"},
		{"none of several", "!in:b,a", "!in:a,b", "not in a, b"},
		{"a location", "site1/row2/rack7", "site1/row2/rack7", "in site1/row2/rack7"},
		{"a location with dots", "site1.row2", "site1.row2", "in site1.row2"},
		{"a location with levels", "site1/rack=k7", "site1/rack=k7", "in site1/rack=k7"},
		{"several without in:", "a,b", "", ""},
		{"nothing", "", "", ""},
		{"none of nothing", "!", "", ""},
		{"one of nothing", "in:", "", ""},
		{"an empty name", "in:a,", "", ""},
		{"twice not", "!!a", "", ""},
		{"capitals", "SSD", "", ""},
		{"too many", tooMany, "", ""},
		{"a long name", strings.Repeat("a", 700), "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := croft.ParseBound(c.text)
			if c.want == "" {
				if croft.KindOf(err) != croft.Invalid {
					t.Fatalf("got %q, %v", got, err)
				}
				return
			}
			if err != nil || string(got) != c.want || got.String() != c.says || got.Not() != (c.text[0] == '!') {
				t.Errorf("got %q, %q, %v", string(got), got, err)
			}
			if err := croft.CheckBounds([]croft.Bound{got}); err != nil {
				t.Error(err)
			}
		})
	}
	if err := croft.CheckBounds([]croft.Bound{"in:b,a"}); croft.KindOf(err) != croft.Invalid {
		t.Errorf("another form is stored: %v", err)
	}
	var many []croft.Bound
	for i := range 17 {
		many = append(many, croft.Bound(fmt.Sprint("a", i)))
	}
	if err := croft.CheckBounds(many); croft.KindOf(err) != croft.Invalid {
		t.Errorf("17 names: %v", err)
	}
	if err := croft.CheckBounds(many[1:]); err != nil {
		t.Error(err)
	}
}

func FuzzParseBound(f *testing.F) {
	for _, text := range []string{"ssd", "in:a,b", "!a", "!in:a,b.c/d", "in:,", "!in:!"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		b, err := croft.ParseBound(text)
		if err != nil {
			if croft.KindOf(err) != croft.Invalid {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		if again, err := croft.ParseBound(string(b)); err != nil || again != b || len(b.Names()) == 0 {
			t.Fatalf("%q is %q and then %q, %v", text, b, again, err)
		}
	})
}

func TestPoliciesAreChecked(t *testing.T) {
	for _, c := range []struct {
		name  string
		p     croft.CrushPolicy
		wants string // in the error; empty: none
	}{
		{"a plain one", croft.CrushPolicy{Name: "db-1", Text: "# two\n\tuse a; take 1\n"}, ""},
		{"no name", croft.CrushPolicy{Text: "take 1"}, "is not the name of a policy"},
		{"a name that is a path", croft.CrushPolicy{Name: "a/b", Text: "take 1"}, "is not the name of a policy"},
		{"a long one", croft.CrushPolicy{Name: "a", Text: strings.Repeat("#", croft.MaxPolicyText+1)},
			"has 4097 bytes"},
		{"a bell", croft.CrushPolicy{Name: "a", Text: "take 1\a"}, "cannot be printed"},
		{"no UTF-8", croft.CrushPolicy{Name: "a", Text: "take 1 # \xff"}, "cannot be printed"},
	} {
		err := c.p.Check()
		if c.wants == "" && err == nil {
			continue
		}
		if !errors.Is(err, croft.Invalid) || c.wants == "" || !strings.Contains(err.Error(), c.wants) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.wants)
		}
	}
}
