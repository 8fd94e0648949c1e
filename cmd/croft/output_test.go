package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"croft"
	"croft/cli/out"
	"croft/schedule/sshkeys"
)

func TestTable(t *testing.T) {
	tab := out.Table{}
	tab.Head("NAME", "STATE")
	tab.Row(out.Cell{Text: "größer"}, out.Cell{Text: "running", Color: out.Green})
	tab.Texts("x", "y")
	const want = "NAME    STATE\ngrößer  running\nx       y\n"
	if got := tab.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	tab.Color = true
	if got := tab.String(); !strings.Contains(got, "größer  \x1b[32mrunning\x1b[0m\n") {
		t.Errorf("colors shift the columns: %q", got)
	}
}

func TestAddress(t *testing.T) {
	v4, v6 := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
	for _, c := range []struct {
		name string
		o    *croft.Observation
		want string
	}{
		{"nothing seen yet", nil, ""},
		{"none", &croft.Observation{State: croft.StateRunning}, ""},
		{"IPv4 before IPv6", &croft.Observation{State: croft.StateRunning, Addresses: []netip.Addr{v6, v4}}, "10.0.0.1"},
		{"IPv6 where there is no other", &croft.Observation{State: croft.StateRunning, Addresses: []netip.Addr{v6}}, "fd00::1"},
		{"one that a stopped guest had does not count", &croft.Observation{State: croft.StateStopped, Addresses: []netip.Addr{v4}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := address(croft.Status{Observation: c.o}); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestPrintData(t *testing.T) {
	value := map[string]any{"number": 1, "text": "1", "lines": "a\nb", "truth": "true", "list": []string{}}
	for format, want := range map[string]string{
		out.FormatJSON: "{\n  \"lines\": \"a\\nb\",\n  \"list\": [],\n  \"number\": 1,\n  \"text\": \"1\",\n  \"truth\": \"true\"\n}\n",
		out.FormatYAML: "lines: |-\n    a\n    b\nlist: []\nnumber: 1\ntext: \"1\"\ntruth: \"true\"\n",
	} {
		var b bytes.Buffer
		if err := out.PrintData(&b, format, value); err != nil {
			t.Fatal(err)
		}
		if b.String() != want {
			t.Errorf("%s: got\n%s\nwant\n%s", format, &b, want)
		}
	}
}

const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB somebody@somewhere"

func TestReadKeys(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("SSH_AUTH_SOCK", "")
	for name, text := range map[string]string{
		".ssh/id.pub": key + "\n", ".ssh/no.pub": "not a key\n", ".ssh/two.pub": "# two\n" + key + " a\n\n" + key + " b\n",
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
		{"what a pattern finds, but for what is no key", []string{"~/.ssh/*.pub"}, []string{key, key + " a", key + " b"}},
		{"a pattern that finds nothing", []string{"~/nothing/*.pub"}, []string{}},
		{"without an agent the files, where either will do", []string{"auto"}, []string{key, key + " a", key + " b"}},
		{"without an agent nothing, where it must be one", []string{"agent"}, nil},
		{"a named file that is no key", []string{"~/.ssh/no.pub"}, nil},
		{"a broken pattern", []string{"~/.ssh/[.pub"}, nil},
		{"a key with a second line", []string{key + "\n" + key}, nil},
		{"a key with options", []string{`no-pty,from="10.0.0.0/8" ` + key}, []string{`no-pty,from="10.0.0.0/8" ` + key}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, names, err := sshkeys.Read(c.texts)
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

func TestReportAndExitCode(t *testing.T) {
	notFound, conflict := croft.Errorf(croft.NotFound, "one"), croft.Errorf(croft.Conflict, "two")
	for _, c := range []struct {
		name string
		err  error
		want string
		code int
	}{
		{"nothing wrong", nil, "", 0},
		{"one thing", notFound, "croft: one\n", 3},
		{"several things are a line each, the first has the exit code", errors.Join(notFound, errors.Join(conflict, notFound)), "croft: one\ncroft: two\ncroft: one\n", 3},
		{"a first thing without a kind is a failure", errors.Join(errors.New("plain"), notFound), "croft: plain\ncroft: one\n", 1},
		{"a sentence made of two errors is one", fmt.Errorf("%w; and %w", notFound, conflict), "croft: one; and two\n", 3},
		{"an interrupt", fmt.Errorf("wait: %w", context.Canceled), "croft: interrupted: wait: context canceled\n", 1},
		{"a deadline", fmt.Errorf("wait: %w", context.DeadlineExceeded), "croft: wait: context deadline exceeded\n", 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b bytes.Buffer
			report(&b, c.err)
			if b.String() != c.want {
				t.Errorf("got %q, want %q", &b, c.want)
			}
			if code := exitCode(c.err); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
		})
	}
}
