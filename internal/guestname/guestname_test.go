package guestname

import (
	"strings"
	"testing"

	"croft"
)

func TestANameIsOneOfTheDNSOrNone(t *testing.T) {
	for _, c := range []struct {
		name    string
		project croft.Project
		want    string // empty: none
	}{
		{"web", "default", "web.default.croft"},
		{"web-1", "org.team", "web-1.org.team.croft"},
		{"1", "2", "1.2.croft"},
		{"com", "google", "com.google.croft"},
		{"Web", "default", ""},       // the DNS does not tell it from web
		{"web", "Default", ""},       // nor this project from default
		{"a.b", "default", ""},       // it would be a in the project b.default
		{"web_1", "default", ""},     // no host name
		{"-web", "default", ""},      // no host name
		{"web", "a..b", ""},          // no domain
		{"web", "a.", ""},            // no domain
		{"wpad", "default", ""},      // browsers take their proxy from there
		{"isatap", "default", ""},    // a tunnel
		{"localhost", "default", ""}, // the guest itself
		{"web'/><host", "default", ""},
		{strings.Repeat("a", 63), "default", strings.Repeat("a", 63) + ".default.croft"},
		{strings.Repeat("a", 64), "default", ""},
	} {
		if got, ok := Full(c.name, c.project); ok != (c.want != "") || ok && got != c.want {
			t.Errorf("%s of %s: %s, %v; want %q", c.name, c.project, got, ok, c.want)
		}
	}
	if got, ok := Search("org.team"); !ok || got != "org.team.croft" {
		t.Errorf("the domain of a project: %s, %v", got, ok)
	}
}
