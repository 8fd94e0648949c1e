package croft_test

import (
	"strings"
	"testing"

	"croft"
)

func TestParseAffinity(t *testing.T) {
	for _, c := range []struct {
		text string
		rule croft.AffinityRule
		want string // "": refused
	}{
		{"web", croft.Apart, "anti-affinity web"},
		{"web:soft", croft.Apart, "anti-affinity web:soft"},
		{"web", croft.Together, "affinity web"},
		{"web:soft", croft.Together, "affinity web:soft"},
		{"web:", croft.Together, ""},
		{"web:hard", croft.Together, ""},
		{"web:soft:soft", croft.Together, ""},
	} {
		t.Run(string(c.rule)+" "+c.text, func(t *testing.T) {
			got, err := croft.ParseAffinity(c.rule, c.text)
			switch {
			case c.want == "" && croft.KindOf(err) != croft.Invalid:
				t.Errorf("got %v, %v, want that it is refused", got, err)
			case c.want != "" && (err != nil || got.String() != c.want):
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			}
			if c.want != "" && got.Rule.Softened().Soft() != true {
				t.Errorf("%s does not become soft", got)
			}
		})
	}
}

func TestAdmit(t *testing.T) {
	member := func(rule croft.AffinityRule, host croft.HostID) croft.GroupMember {
		return croft.GroupMember{Affinity: croft.Affinity{Group: "web", Rule: rule}, Name: "web1", Host: host}
	}
	for _, c := range []struct {
		name    string
		rule    croft.AffinityRule
		members []croft.GroupMember
		want    croft.Kind
	}{
		{"an empty group admits anywhere", croft.Apart, nil, ""},
		{"apart, nobody is on the host", croft.Apart, []croft.GroupMember{member(croft.Apart, "b")}, ""},
		{"apart, somebody is on the host", croft.Apart, []croft.GroupMember{member(croft.Apart, "b"),
			member(croft.Apart, "a")}, croft.NoCapacity},
		{"together, all are on the host", croft.Together, []croft.GroupMember{member(croft.Together, "a")}, ""},
		{"together, they are elsewhere", croft.Together, []croft.GroupMember{member(croft.Together, "b")},
			croft.NoCapacity},
		{"softly apart", croft.ApartSoft, []croft.GroupMember{member(croft.ApartSoft, "a")}, ""},
		{"softly together", croft.TogetherSoft, []croft.GroupMember{member(croft.TogetherSoft, "b")}, ""},
		{"another rule", croft.Apart, []croft.GroupMember{member(croft.ApartSoft, "b")}, croft.Conflict},
		{"another group", croft.Apart, []croft.GroupMember{{Affinity: croft.Affinity{Group: "db", Rule: croft.Together},
			Host: "a"}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := croft.Affinity{Group: "web", Rule: c.rule}.Admit("a", c.members)
			if croft.KindOf(err) != c.want {
				t.Errorf("got %v, want kind %q", err, c.want)
			}
		})
	}
}

func TestRules(t *testing.T) {
	for _, c := range []struct {
		rule croft.AffinityRule
		want string // clauses; "": refused
	}{
		{croft.Together, "same-host"},
		{croft.ApartSoft, "at-most-1-per-host"},
		{"at-most-1-per-rack", "at-most-1-per-rack"},
		{"at-most-12-per-site-soft", "at-most-12-per-site"},
		{"same-site", "same-site"},
		{"at-most-2-per-rack+same-site", "at-most-2-per-rack same-site"},
		{"at-most-1-per-host+same-row-soft", "at-most-1-per-host same-row"},
		{"", ""},
		{"nearby", ""},
		{"same-", ""},
		{"same-room", ""},
		{"at-most-0-per-rack", ""},
		{"at-most-1000-per-rack", ""},
		{"at-most--1-per-rack", ""},
		{"at-most-1.5-per-rack", ""},
		{"at-most-2-per-", ""},
		{"2-per-rack", ""},
		{"same-site+at-most-2-per-rack", ""},
		{"same-site+same-row", ""},
		{"at-most-1-per-rack+at-most-2-per-row", ""},
		{"at-most-01-per-rack", ""},
		{"at-most-1-per-host", ""}, // its name is anti-affinity
		{"same-host", ""},
		{"same-site-soft-soft", ""},
	} {
		t.Run(string(c.rule), func(t *testing.T) {
			clauses, err := c.rule.Clauses()
			var words []string
			for _, clause := range clauses {
				words = append(words, clause.String())
			}
			if got := strings.Join(words, " "); got != c.want || (err == nil) != (c.want != "") {
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			}
			if err != nil && croft.KindOf(err) != croft.Invalid {
				t.Errorf("got %v, want Invalid", err)
			}
			if err == nil && !c.rule.Soft() && croft.RuleOf(clauses...) != c.rule {
				t.Errorf("its clauses are of the rule %s", croft.RuleOf(clauses...))
			}
		})
	}
}

func TestAdmitSeats(t *testing.T) {
	seat := func(clause, location string, number int) croft.Seat {
		return croft.Seat{Group: "web", Clause: clause, Location: location, Number: number, Instance: "other"}
	}
	for _, c := range []struct {
		name   string
		rule   croft.AffinityRule
		wanted string // clause and location
		taken  []croft.Seat
		want   string // "": admitted
	}{
		{"nobody is there", "at-most-1-per-rack", "at-most-1-per-rack s/r/k", nil, ""},
		{"somebody is in another rack", "at-most-1-per-rack", "at-most-1-per-rack s/r/k",
			[]croft.Seat{seat("at-most-1-per-rack", "s/r/l", 1)}, ""},
		{"the rack is full", "at-most-1-per-rack", "at-most-1-per-rack s/r/k",
			[]croft.Seat{seat("at-most-1-per-rack", "s/r/k", 1)}, "rack s/r/k has a member of group web already"},
		{"there is room for another", "at-most-2-per-rack", "at-most-2-per-rack s/r/k",
			[]croft.Seat{seat("at-most-2-per-rack", "s/r/k", 2)}, ""},
		{"two are there", "at-most-2-per-rack", "at-most-2-per-rack s/r/k",
			[]croft.Seat{seat("at-most-2-per-rack", "s/r/k", 1), seat("at-most-2-per-rack", "s/r/k", 2)},
			"rack s/r/k has 2 members of group web already"},
		{"a host without a location", "at-most-1-per-rack", "at-most-1-per-rack host=h",
			[]croft.Seat{seat("at-most-1-per-rack", "host=h", 1)},
			"it, a rack of its own, has a member of group web already"},
		{"a host counts for itself", "at-most-2-per-host+same-site", "at-most-2-per-host s/r/k/h",
			[]croft.Seat{seat("at-most-2-per-host", "s/r/k/h", 1), seat("at-most-2-per-host", "s/r/k/h", 2)},
			"it has 2 members of group web already"},
		{"all are in the site", "same-site", "same-site s", []croft.Seat{seat("same-site", "s", 0)}, ""},
		{"they are in another", "same-site", "same-site s", []croft.Seat{seat("same-site", "t", 0)},
			"is not in the site of group web, t, whose members stay together"},
		{"another group is there", "at-most-1-per-rack", "at-most-1-per-rack s/r/k",
			[]croft.Seat{{Group: "db", Clause: "at-most-1-per-rack", Location: "s/r/k", Number: 1}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			clause, location, _ := strings.Cut(c.wanted, " ")
			err := croft.Affinity{Group: "web", Rule: c.rule}.AdmitSeats([]croft.Seat{
				{Group: "other", Clause: clause, Location: location},
				{Group: "web", Clause: clause, Location: location}}, c.taken)
			if c.want == "" && err != nil || c.want != "" && (croft.KindOf(err) != croft.NoCapacity ||
				err.Error() != c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestSeatsGetFreeNumbers(t *testing.T) {
	want := croft.Seat{Group: "web", Clause: "at-most-3-per-rack", Location: "s/r/k"}
	other := want
	other.Location = "s/r/l"
	var taken []croft.Seat
	for n := range 3 {
		other.Number = n + 1
		taken = append(taken, other)
	}
	seen := map[int]bool{}
	for range 3 {
		got := croft.Renumber([]croft.Seat{want, {Group: "web", Clause: "same-site", Location: "s"}}, taken)
		if n := got[0].Number; n < 1 || n > 3 || seen[n] || got[1].Number != 0 {
			t.Fatalf("got %+v, taken are %+v", got, taken)
		}
		seen[got[0].Number] = true
		taken = append(taken, got[0])
	}
	if got := croft.Renumber([]croft.Seat{want}, taken); got[0].Number != 0 {
		t.Errorf("got number %d of a full rack", got[0].Number)
	}
}
