package sshkeys

import (
	"crypto/ed25519"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh/agent"

	"croft"
	"croft/internal/testing/sshagent"
)

// serveAgent runs an SSH agent with these keys, identified by their comments.
func serveAgent(t *testing.T, comments ...string) {
	t.Helper()
	var keys []agent.AddedKey
	for _, comment := range comments {
		_, private, err := ed25519.GenerateKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, agent.AddedKey{PrivateKey: private, Comment: comment})
	}
	t.Setenv("SSH_AUTH_SOCK", sshagent.Serve(t, keys...))
}

func TestKeysOfTheAgent(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Run("they are taken before the files", func(t *testing.T) {
		serveAgent(t, "one", "two")
		for _, word := range []string{"auto", "agent"} {
			keys, names, err := Read([]string{word})
			if err != nil || len(names) > 0 || len(keys) != 2 || !strings.HasSuffix(keys[0],
				" one") || !strings.HasSuffix(keys[1], " two") {
				t.Errorf("%s gives %q, the names %q, %v", word, keys, names, err)
			}
		}
	})
	t.Run("an agent without keys is none", func(t *testing.T) {
		serveAgent(t)
		if keys, _, err := Read([]string{"auto"}); err != nil || len(keys) > 0 {
			t.Errorf("auto gives %q, %v", keys, err)
		}
		if _, _, err := Read([]string{"agent"}); err == nil || !strings.Contains(err.Error(), "ssh-add") {
			t.Errorf("agent gives %v", err)
		}
	})
}

func TestNamesOfKeysAreLeftForTheCloud(t *testing.T) {
	t.Chdir(t.TempDir())
	keys, names, err := Read([]string{"laptop", key, "desk"})
	if err != nil || !slices.Equal(names, []string{"laptop", "desk"}) || !slices.Equal(keys, []string{key}) {
		t.Errorf("keys %q, names %q, %v", keys, names, err)
	}
}

const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB somebody@somewhere"

func TestReadKeys(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("SSH_AUTH_SOCK", "")
	for name, text := range map[string]string{
		".ssh/id.pub": key + "\n", ".ssh/no.pub": "not a key\n",
		".ssh/two.pub": "# two\n" + key + " a\n\n" + key + " b\n",
	} {
		if err := os.MkdirAll(filepath.Join(dir, ".ssh"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name  string
		texts []string
		want  []string // nil: refused
	}{
		{"none", nil, []string{}},
		{"a key as it is", []string{key}, []string{key}},
		{"a file in the home directory", []string{"~/.ssh/id.pub"}, []string{key}},
		{"a file with several and a comment", []string{"~/.ssh/two.pub"}, []string{key + " a", key + " b"}},
		{"what a pattern finds, but for what is no key", []string{"~/.ssh/*.pub"},
			[]string{key, key + " a", key + " b"}},
		{"a pattern that finds nothing", []string{"~/nothing/*.pub"}, []string{}},
		{"without an agent the files, where either will do", []string{"auto"}, []string{key, key + " a", key + " b"}},
		{"without an agent nothing, where it must be one", []string{"agent"}, nil},
		{"a named file that is no key", []string{"~/.ssh/no.pub"}, nil},
		{"a broken pattern", []string{"~/.ssh/[.pub"}, nil},
		{"a key with a second line", []string{key + "\n" + key}, nil},
		{"a key with options", []string{`no-pty,from="10.0.0.0/8" ` + key},
			[]string{`no-pty,from="10.0.0.0/8" ` + key}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, names, err := Read(c.texts)
			if c.want == nil {
				if croft.KindOf(err) != croft.Invalid {
					t.Errorf("got %q and error %v, want an invalid one", got, err)
				}
				return
			}
			if err != nil || !slices.Equal(got, c.want) || len(names) > 0 {
				t.Errorf("got %q, the names %q, %v; want %q", got, names, err, c.want)
			}
		})
	}
}

func TestKeysHaveNoHiddenCharacters(t *testing.T) {
	for _, hidden := range []string{"\x1b[2J", "\x00", "\u202e", "\u200b", "\u2028", "\xff"} {
		if _, err := Parse(key + hidden + "x"); croft.KindOf(err) != croft.Invalid {
			t.Errorf("%q: %v", hidden, err)
		}
	}
	if line, err := Parse(key + "\tZoë\r\n"); err != nil || line != key+"\tZoë" {
		t.Errorf("got %q, %v", line, err)
	}
}
