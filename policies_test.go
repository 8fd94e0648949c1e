package croft_test

import (
	"errors"
	"strings"
	"testing"

	"croft"
)

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
