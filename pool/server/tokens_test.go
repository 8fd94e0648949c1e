package server

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestTokensAreFoundByWhatTheyAre(t *testing.T) {
	token, grant, err := NewToken("ci@lab", RoleClient)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(grant.Line(), token) {
		t.Fatal("the file would have the token itself")
	}
	all, err := ParseTokens("tokens", []byte("# who may\n\n"+grant.Line()))
	if err != nil || len(all) != 1 || all[0] != grant {
		t.Fatalf("got %v, %v", all, err)
	}
}

func TestFaultsInAFileOfTokens(t *testing.T) {
	hash := "sha256:" + strings.Repeat("0f", 32)
	for _, c := range []struct{ name, text, want string }{
		{"a quota that is none", "a client sha256:" + strings.Repeat("0", 64) + " most=3\n",
			"tokens:1: \"most=3\" is not a quota: use open=N or rate=N"},
		{"a negative quota", "a client sha256:" + strings.Repeat("0", 64) + " open=-3\n",
			"tokens:1: a quota of -3 open tickets"},
		{"too few words", "a client\n", "tokens:1: a line has three words"},
		{"a name that is none", "\n-a client " + hash, `tokens:2: "-a" is not a token name`},
		{"a role that is none", "a root " + hash, `tokens:1: "root" is not a role: use client or admin`},
		{"a token in place of its hash", "a client cp_abc", "sha256: and 64 hexadecimal digits"},
		{"half a hash", "a client sha256:0f0f", "sha256: and 64 hexadecimal digits"},
		{"a name twice", "a client " + hash + "\na admin " + hash, "tokens:2: there is another token named a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := ParseTokens("tokens", []byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestNamesAndRolesOfNewTokens(t *testing.T) {
	for _, c := range []struct{ name, role string }{{"", "client"}, {"a b", "client"}, {"a", "boss"},
		{"a\nb", "admin"}} {
		if _, _, err := NewToken(c.name, Role(c.role)); err == nil {
			t.Errorf("a token %q with role %q was made", c.name, c.role)
		}
	}
}

func TestAChangedFileCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "tokens")
		first, one, _ := NewToken("one", RoleClient)
		second, two, _ := NewToken("two", RoleAdmin)
		write := func(text string) {
			t.Helper()
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * tokenFreshness)
		}
		write(one.Line())
		tokens, err := LoadTokens(file, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		want := func(token, name string) {
			t.Helper()
			if g, _ := tokens.Find(token); g.Name != name {
				t.Errorf("the token is %q's, want %q", g.Name, name)
			}
		}
		want(first, "one")
		want(second, "")
		write(one.Line() + two.Line())
		want(second, "two")
		write("nonsense")
		want(second, "two") // its last valid version
		write(two.Line())
		want(first, "") // revoked
		want(second, "two")
		if err := os.Chmod(file, 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadTokens(file, slog.New(slog.DiscardHandler)); err == nil ||
			!strings.Contains(err.Error(), "chmod go-w") {
			t.Errorf("a file that all may write: %v", err)
		}
	})
}
