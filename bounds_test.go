package croft_test

import (
	"fmt"
	"strings"
	"testing"

	"croft"
)

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
