package image

import (
	"strings"
	"testing"

	"croft"
)

func TestParseReference(t *testing.T) {
	h256, h512 := strings.Repeat("a1", 32), strings.Repeat("b2", 64)
	for _, c := range []struct {
		name, in string
		want     Reference
		string   string // the expected String; empty: unchanged
	}{
		{"a URL", "https://example.com/a/disk.qcow2", Reference{URL: "https://example.com/a/disk.qcow2"}, ""},
		{"a query belongs to the URL", "http://example.com/d?v=1&x=2", Reference{URL: "http://example.com/d?v=1&x=2"},
			""},
		{"a path", "/srv/disk.img", Reference{Path: "/srv/disk.img"}, "file:///srv/disk.img"},
		{"a path is cleaned", "/srv/../etc//x", Reference{Path: "/etc/x"}, "file:///etc/x"},
		{"a file URL", "file:///srv/a%20b.img", Reference{Path: "/srv/a b.img"}, ""},
		{"a file URL of this very host", "file://localhost/srv/x", Reference{Path: "/srv/x"}, "file:///srv/x"},
		{"a # in a file's name", "/srv/a#b.img", Reference{Path: "/srv/a#b.img"}, "file:///srv/a%23b.img"},
		{"a sha256", "/x#sha256=" + h256, Reference{Path: "/x", SHA256: h256}, "file:///x#sha256=" + h256},
		{"a sha256 in capitals", "http://e/x#sha256=" + strings.ToUpper(h256),
			Reference{URL: "http://e/x", SHA256: h256}, "http://e/x#sha256=" + h256},
		{"a sha512", "http://e/x#sha512=" + h512, Reference{URL: "http://e/x", SHA512: h512}, ""},
		{"a list beside the image", "http://e/a/x#sums=SHA256SUMS",
			Reference{URL: "http://e/a/x", Sums: "http://e/a/SHA256SUMS"}, ""},
		{"a list elsewhere", "http://e/a/x#sums=https://f/S%3Fa%26b",
			Reference{URL: "http://e/a/x", Sums: "https://f/S?a&b"}, "http://e/a/x#sums=https%3A%2F%2Ff%2FS%3Fa%26b"},
		{"a list in the directory above", "http://e/a/x#sums=../S", Reference{URL: "http://e/a/x", Sums: "http://e/S"},
			"http://e/a/x#sums=http%3A%2F%2Fe%2FS"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ParseReference(c.in)
			if err != nil || got != c.want {
				t.Fatalf("got %+v, %v; want %+v", got, err, c.want)
			}
			if c.string == "" {
				c.string = c.in
			}
			if got.String() != c.string {
				t.Errorf("written as %q, want %q", got, c.string)
			}
			if back, err := ParseReference(got.String()); err != nil || back != got {
				t.Errorf("read back as %+v, %v", back, err)
			}
		})
	}
}

func TestParseReferenceSaysWhatIsWrong(t *testing.T) {
	for _, c := range []struct{ name, in, words string }{
		{"nothing", "", "neither a URL nor an absolute path"},
		{"a relative path", "images/disk.img", "neither a URL nor an absolute path"},
		{"another protocol", "ftp://e/x", "ftp addresses cannot be fetched"},
		{"no server", "http:///x", "names no server"},
		{"a file of another host", "file://elsewhere/x", "three slashes"},
		{"a file URL with a query", "file:///x?y", "ABSOLUTE/PATH"},
		{"two fragments", "http://e/x#sha256=a#b", "64 hexadecimal digits"},
		{"control characters", "http://e/\x01", "not a valid address"},
		{"a short checksum", "http://e/x#sha256=abc", "64 hexadecimal digits"},
		{"a checksum of other letters", "http://e/x#sha256=" + strings.Repeat("x", 64), "64 hexadecimal digits"},
		{"a sha512 under the name of a sha256", "/x#sha256=" + strings.Repeat("a", 128), "64 hexadecimal digits"},
		{"a mistyped key", "http://e/x#sha265=" + strings.Repeat("a", 64), `did you mean "sha256"?`},
		{"several checks", "http://e/x#sha256=" + strings.Repeat("a", 64) + "&sums=S", "not several"},
		{"a bare fragment", "http://e/x#top", `"top" after the #`},
		{"a list for a file", "/x#sums=S", "only for http and https images"},
		{"a list in a file", "http://e/x#sums=file:///etc/passwd", "not an http or https address"},
		{"no list", "http://e/x#sums=", "not an http or https address"},
		{"bad escapes", "http://e/x#sums=%zz", "cannot be read"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParseReference(c.in)
			refused(t, nil, err, croft.Invalid, c.words)
		})
	}
}

func TestReferenceHidesPasswords(t *testing.T) {
	ref, err := ParseReference("https://me:secret@example.com/x")
	if err != nil || strings.Contains(ref.Name(), "secret") {
		t.Errorf("Name() = %q, %v", ref.Name(), err)
	}
}

func FuzzParseReference(f *testing.F) {
	for _, s := range []string{"/x", "http://e/x", "file:///a%20b#sha256=" + strings.Repeat("a", 64),
		"https://e/a/x#sums=S&signed-by=/k%26.gpg&signature=https%3A%2F%2Ff%2Fs", "http://e//x#sums=S",
		"http://e/a/x#sums=%2E%2E/S"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ref, err := ParseReference(s)
		if err != nil {
			if croft.KindOf(err) != croft.Invalid {
				t.Errorf("kind %q: %v", croft.KindOf(err), err)
			}
			return
		}
		if (ref.URL == "") == (ref.Path == "") {
			t.Errorf("%q: neither or both of URL and path: %+v", s, ref)
		}
		back, err := ParseReference(ref.String())
		if err != nil || back != ref {
			t.Errorf("%q is %+v, written %q, read back %+v, %v", s, ref, ref, back, err)
		}
	})
}
