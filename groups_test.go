package croft_test

import (
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
	member := func(rule croft.AffinityRule, host croft.HostID) croft.Member {
		return croft.Member{Affinity: croft.Affinity{Group: "web", Rule: rule}, Name: "web1", Host: host}
	}
	for _, c := range []struct {
		name    string
		rule    croft.AffinityRule
		members []croft.Member
		want    croft.Kind
	}{
		{"an empty group admits anywhere", croft.Apart, nil, ""},
		{"apart, nobody is on the host", croft.Apart, []croft.Member{member(croft.Apart, "b")}, ""},
		{"apart, somebody is on the host", croft.Apart, []croft.Member{member(croft.Apart, "b"),
			member(croft.Apart, "a")}, croft.NoCapacity},
		{"together, all are on the host", croft.Together, []croft.Member{member(croft.Together, "a")}, ""},
		{"together, they are elsewhere", croft.Together, []croft.Member{member(croft.Together, "b")}, croft.NoCapacity},
		{"softly apart", croft.ApartSoft, []croft.Member{member(croft.ApartSoft, "a")}, ""},
		{"softly together", croft.TogetherSoft, []croft.Member{member(croft.TogetherSoft, "b")}, ""},
		{"another rule", croft.Apart, []croft.Member{member(croft.ApartSoft, "b")}, croft.Conflict},
		{"another group", croft.Apart, []croft.Member{{Affinity: croft.Affinity{Group: "db", Rule: croft.Together},
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
