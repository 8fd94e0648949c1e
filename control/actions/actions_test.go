package actions_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"

	"croft"
	"croft/control/actions"
)

func TestObjectsAreNamedByKindAndNameOrID(t *testing.T) {
	web := actions.Object{Kind: actions.Instance, ID: "0e2f", Name: "web"}
	for text, want := range map[string]bool{"web": true, "instance/web": true, "instance/0e2f": true, "0e2f": true,
		"host/web": false, "instance/we": false} {
		o, err := actions.ParseObject(text)
		if got := (actions.Filter{Object: o}).Has(actions.Entry{Object: web}); err != nil || got != want {
			t.Errorf("%s: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "instance/", "/web", "in stance/web", "Instance/web", strings.Repeat("x", 200)} {
		if o, err := actions.ParseObject(text); croft.KindOf(err) != croft.Invalid {
			t.Errorf("%q: %v, %v", text, o, err)
		}
	}
	for want, o := range map[string]actions.Object{"instance/web": web, "token/1f": {Kind: actions.Token, ID: "1f"},
		"quota": {Kind: actions.Quota}} {
		if o.String() != want {
			t.Errorf("%+v is %s, want %s", o, o, want)
		}
	}
}

func TestFiltersChooseByUserAndTime(t *testing.T) {
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	e := actions.Entry{Time: at, User: "ann"}
	for name, c := range map[string]struct {
		f    actions.Filter
		want bool
	}{
		"nothing is asked":    {actions.Filter{}, true},
		"the user":            {actions.Filter{User: "ann"}, true},
		"another user":        {actions.Filter{User: "anna"}, false},
		"since that moment":   {actions.Filter{Since: at}, true},
		"since a later one":   {actions.Filter{Since: at.Add(1)}, false},
		"user and other time": {actions.Filter{User: "ann", Since: at.Add(1)}, false},
		"an object":           {actions.Filter{Object: actions.Object{Kind: actions.Host, Name: "h"}}, false},
	} {
		if got := c.f.Has(e); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestEntriesAreBounded(t *testing.T) {
	wild := "a\x1b[2J\n" + strings.Repeat("ü", 5000) + "\xff"
	b := actions.NewBatch(actions.Entry{User: "ann", Object: actions.Object{Kind: "instance", ID: wild, Name: wild},
		Result: wild, From: wild, Via: wild})
	e := b.Entries[0]
	if e.User != "ann" {
		t.Errorf("the user is %q", e.User)
	}
	for _, word := range []string{e.Object.ID, e.Object.Name, e.Result, e.From, e.Via} {
		if len(word) > 140 || strings.ContainsFunc(word, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("it holds %q", word)
		}
	}
}

func TestTheSharesOfProjects(t *testing.T) {
	for _, c := range []struct {
		name      string
		counts    []int
		each, all int
		want      int
	}{
		{"nothing", nil, 10, 100, 10},
		{"little", []int{1, 2, 3}, 10, 100, 10},
		{"one has too many", []int{1, 50, 3}, 10, 100, 10},
		{"all together just fit", []int{10, 10, 50}, 10, 30, 10},
		{"together they have too many", []int{10, 10, 10}, 10, 24, 8},
		{"the busy ones lose, the others nothing", []int{2, 500, 3, 10}, 10, 21, 8},
		{"one alone", []int{500}, 10, 4, 4},
		{"more projects than entries", []int{1, 1, 1}, 10, 2, 0},
	} {
		got := actions.Share(c.counts, c.each, c.all)
		sum, more := 0, 0
		for _, n := range c.counts {
			sum, more = sum+min(n, got), more+min(n, got+1)
		}
		if got != c.want || got > c.each || sum > c.all || got < c.each && more <= c.all {
			t.Errorf("%s: %d, so %d of %d stay; want %d", c.name, got, sum, c.all, c.want)
		}
	}
}

func TestManyProjectsOfOneTreePushOutTheirOwnEntriesAlone(t *testing.T) {
	counts := map[croft.Project]int{"vic": 300, "vic.dev": 200, "-": 5_000}
	for i := range 10_000 {
		counts[croft.Project(fmt.Sprint("evil.s", i))] = 10
	}
	shares := actions.Shares(counts, actions.MostOfProject, actions.MostOfAll)
	kept := 0
	for p, n := range counts {
		kept += min(n, shares[p])
	}
	if shares["vic"] < 300 || shares["vic.dev"] < 200 || shares["-"] < 2_000 || kept > actions.MostOfAll {
		t.Errorf("vic may keep %d, vic.dev %d, the operators %d, and %d stay in all; want 300, 200, 2000 and no more than %d",
			shares["vic"], shares["vic.dev"], shares["-"], kept, actions.MostOfAll)
	}
}
