package access_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"croft"
	"croft/tenant/access"
)

func TestASecretIsReadAsItWasWritten(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		s := access.NewSecret()
		text := s.Text()
		got, err := access.ParseSecret(text)
		if err != nil || got != s || !bytes.Equal(got.Hash(), s.Hash()) {
			t.Fatalf("%s: got %v, %v", text, got, err)
		}
		if len(text) != 62 || !strings.HasPrefix(text, "croft_"+string(s.ID)+"_") {
			t.Errorf("its text is %q", text)
		}
		if seen[text] || seen[string(s.ID)] {
			t.Errorf("%s was there before", text)
		}
		seen[text], seen[string(s.ID)] = true, true
	}
}

func TestASecretDoesNotPrintItself(t *testing.T) {
	s := access.NewSecret()
	key := s.Text()[19:]
	for _, verb := range []string{"%s", "%v", "%+v", "%#v", "%q"} {
		for _, value := range []any{s, &s, []access.Secret{s}, struct{ S access.Secret }{s}} {
			if got := fmt.Sprintf(verb, value); strings.Contains(got, key) || !strings.Contains(got, string(s.ID)) {
				t.Errorf("%s of %T prints %s", verb, value, got)
			}
		}
	}
}

func TestTextsThatAreNoToken(t *testing.T) {
	good := access.NewSecret().Text()
	for name, text := range map[string]string{
		"nothing":              "",
		"the prefix":           "croft_",
		"no key":               good[:19],
		"one byte less":        good[:61],
		"one byte more":        good + "A",
		"a space behind":       good + " ",
		"a line break behind":  good[:61] + "\n",
		"a line break inside":  good[:19] + strings.Repeat("A", 21) + "\n" + strings.Repeat("A", 21),
		"no prefix":            good[6:],
		"another prefix":       "runm_" + good[6:],
		"a prefix in capitals": "CROFT_" + good[6:],
		"a prefix twice":       "croft_" + good,
		"an ID in capitals":    "croft_" + strings.Repeat("A", 12) + good[18:],
		"a short ID":           "croft_" + good[7:],
		"other letters":        good[:61] + "+",
		"padding":              good[:61] + "=",
		"a key in other bits":  good[:19] + strings.Repeat("A", 42) + "B",
		"no second underscore": good[:18] + "-" + good[19:],
	} {
		t.Run(name, func(t *testing.T) {
			s, err := access.ParseSecret(text)
			if croft.KindOf(err) != croft.Invalid || s != (access.Secret{}) {
				t.Errorf("%q: got %v, %v", text, s, err)
			}
			if len(text) > 30 && strings.Contains(err.Error(), text[19:30]) {
				t.Errorf("the error repeats the secret: %v", err)
			}
		})
	}
}

func FuzzParseSecret(f *testing.F) {
	f.Add("croft_0123456789ab_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
	f.Add("croft_0123456789ab_AAAAAAAAAAAAAAAAAAAAA_-AAAAAAAAAAAAAAAAAAAE")
	f.Add("croft__")
	f.Add("croft_0123456789ab_\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := access.ParseSecret(text)
		if err == nil && s.Text() != text {
			t.Errorf("%q is read as %q", text, s.Text())
		}
		if err != nil && (croft.KindOf(err) != croft.Invalid || s != (access.Secret{})) {
			t.Errorf("%q: %v with %v", text, s, err)
		}
	})
}

func TestTokensThatCannotBe(t *testing.T) {
	at := time.Date(2026, 11, 23, 6, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name  string
		spoil func(*access.Token)
		says  string
	}{
		{"as it is", func(*access.Token) {}, ""},
		{"of an operator, for no project", func(t *access.Token) {
			t.Project, t.Roles = "", []access.Role{access.PartitionAdmin}
		}, ""},
		{"an address as user", func(t *access.Token) { t.User = "ann+ci@example.org" }, ""},
		{"a year", func(t *access.Token) { t.Expires = at.AddDate(1, 0, 0) }, ""},
		{"the shortest life", func(t *access.Token) { t.Expires = at.Add(time.Minute) }, ""},
		{"the longest life", func(t *access.Token) { t.Expires = at.Add(8784 * time.Hour) }, ""},
		{"the longest note", func(t *access.Token) { t.Note = strings.Repeat("x", 200) }, ""},
		{"no user", func(t *access.Token) { t.User = "" }, "is not a user's name"},
		{"a user who steers terminals", func(t *access.Token) { t.User = "ann\x1b[2J" }, "is not a user's name"},
		{"no role", func(t *access.Token) { t.Roles = nil }, "needs a role"},
		{"an unknown role", func(t *access.Token) { t.Roles = []access.Role{"king"} }, `"king" is not a role`},
		{"a host's role", func(t *access.Token) { t.Roles = []access.Role{access.Agent} }, "only for hosts"},
		{"no project", func(t *access.Token) { t.Project = "" }, "the role member is for a project"},
		{"a project with a slash", func(t *access.Token) { t.Project = "a/b" }, "is not a project name"},
		{"a short life", func(t *access.Token) { t.Expires = at.Add(59 * time.Second) }, "counts between 1m and"},
		{"a life that is over", func(t *access.Token) { t.Expires = at.Add(-time.Hour) }, "counts between"},
		{"no end", func(t *access.Token) { t.Expires = time.Time{} }, "counts between"},
		{"a long life", func(t *access.Token) { t.Expires = at.AddDate(2, 0, 0) }, "366d"},
		{"a long note", func(t *access.Token) { t.Note = strings.Repeat("x", 201) }, "a note has at most 200"},
		{"a note of two lines", func(t *access.Token) { t.Note = "a\nb" }, "printable"},
		{"a note that is no text", func(t *access.Token) { t.Note = "\xff" }, "printable"},
	} {
		t.Run(c.name, func(t *testing.T) {
			token := access.Token{User: "ann", Project: "lab", Roles: []access.Role{access.Member}, Note: "für CI",
				Created: at, Expires: at.Add(time.Hour)}
			c.spoil(&token)
			got, s, err := access.NewToken(token)
			if c.says == "" {
				if err != nil || got.ID != s.ID || !bytes.Equal(got.Hash, s.Hash()) {
					t.Errorf("got %+v, %v", got, err)
				}
				return
			}
			if croft.KindOf(err) != croft.Invalid || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %q in it", err, c.says)
			}
		})
	}
	token := access.Token{ID: "0123456789ab", User: "ann", Project: "lab", Roles: []access.Role{access.Member},
		Created: at, Expires: at.Add(time.Hour)}
	if err := token.Check(); croft.KindOf(err) != croft.Invalid {
		t.Errorf("a token without a hash: %v", err)
	}
	token.Hash = make([]byte, 32)
	if err := token.Check(); err != nil {
		t.Error(err)
	}
	for _, id := range []access.TokenID{"", "0123456789a", "0123456789abc", "0123456789aB", "../authority",
		"0123456789a/"} {
		token.ID = id
		if err := token.Check(); croft.KindOf(err) != croft.Invalid {
			t.Errorf("the ID %q: %v", id, err)
		}
	}
}
