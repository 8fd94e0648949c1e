package image_test

import (
	"strings"
	"testing"

	"croft"
	"croft/compute/image"
)

func TestSourcesPermitWhatBeginsSo(t *testing.T) {
	const listed = "https://images.example/public/"
	for _, c := range []struct {
		name      string
		sources   string
		reference string
		want      croft.Kind
	}{
		{"below a directory", listed, "https://images.example/public/a/disk.qcow2", ""},
		{"with a checksum", listed, "https://images.example/public/a.raw#sha256=" + strings.Repeat("a", 64), ""},
		{"the same server otherwise written", listed, "https://IMAGES.example.:443/public/a.raw", ""},
		{"a query", listed, "https://images.example/public/a.raw?v=1", ""},
		{"blanks and other letters", listed, "https://images.example/public/a%20b%C3%A9.raw", ""},
		{"a list beside it", listed, "https://images.example/public/a.raw#sums=SHA256SUMS", ""},
		{"every server", "https://", "https://any.example/a.raw", ""},
		{"one of several", listed + " http://10.0.0.1:8080/", "http://10.0.0.1:8080/a.raw", ""},
		{"another scheme", listed, "http://images.example/public/a.raw", croft.Denied},
		{"every server, another scheme", "https://", "http://any.example/a.raw", croft.Denied},
		{"another port", listed, "https://images.example:8443/public/a.raw", croft.Denied},
		{"another directory", listed, "https://images.example/private/a.raw", croft.Denied},
		{"a directory that begins alike", listed, "https://images.example/public-not/a.raw", croft.Denied},
		{"a server that begins alike", "https://images.example/", "https://images.example.evil/a.raw", croft.Denied},
		{"the server as a user", "https://images.example/", "https://images.example@evil/a.raw", croft.Denied},
		{"the server as a user with a path", "https://images.example/", "https://images.example%2F@evil/a.raw",
			croft.Denied},
		{"up by dots", listed, "https://images.example/public/../private/a.raw", croft.Denied},
		{"up by hidden dots", listed, "https://images.example/public/%2e%2e/private/a.raw", croft.Denied},
		{"up by dots and hidden slashes", listed, "https://images.example/public/..%2Fprivate/a.raw", croft.Denied},
		{"a hidden slash", listed, "https://images.example/public%2Fa.raw", croft.Denied},
		{"back slashes", listed, `https://images.example/public/..%5Cprivate/a.raw`, croft.Denied},
		{"two slashes", "https://images.example/", "https://images.example//evil/a.raw", croft.Denied},
		{"its list elsewhere", listed, "https://images.example/public/a.raw#sums=https://10.0.0.1/SHA256SUMS",
			croft.Denied},
		{"its list up by dots", listed, "https://images.example/public/a.raw#sums=../SHA256SUMS", croft.Denied},
		{"its signature elsewhere", listed,
			"https://images.example/public/a.raw#sums=SHA256SUMS&signed-by=/k.gpg&signature=https://10.0.0.1/s.gpg",
			croft.Denied},
		{"a file of the host", "https:// http://", "/srv/images/a.raw", croft.Denied},
		{"a file as a URL", "https:// http://", "file:///srv/images/a.raw", croft.Denied},
		{"nothing is permitted", "", "https://images.example/public/a.raw", croft.Denied},
		{"what is no reference", "https://", "ftp://images.example/a.raw", croft.Invalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := image.ParseSources(strings.Fields(c.sources))
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Check(c.reference); croft.KindOf(err) != c.want || (err == nil) != (c.want == "") {
				t.Errorf("got %v (%s), want %q", err, croft.KindOf(err), c.want)
			}
		})
	}
}

func TestSourcesThatAreNone(t *testing.T) {
	for _, text := range []string{"", "images.example/", "https://images.example", "https://images.example/a",
		"https://images.example/a/../", "https://images.example/%2e%2e/", "https://u@images.example/", "https:",
		"ftp://x/",
		"file:///srv/", "/srv/", "https://images.example/?a=/", "https://images.example/#/", "https:///x/",
		"https://images.example//"} {
		if _, err := image.ParseSources([]string{text}); croft.KindOf(err) != croft.Invalid {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestSourcesWithoutAServerPermitTheInternetAlone(t *testing.T) {
	all, err := image.ParseSources([]string{"https://", "http://"})
	if err != nil {
		t.Fatal(err)
	}
	listed, err := image.ParseSources([]string{"https://", "http://10.0.0.5:8080/images/"})
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]bool{"https://images.example/x.qcow2": true, "http://203.0.113.7/x": true,
		"http://127.0.0.1:2379/x": false, "http://localhost/x": false, "http://a.localhost./x": false,
		"http://169.254.169.254/latest": false, "http://10.0.0.5:8080/images/x": false, "http://192.168.1.1/x": false,
		"http://[::1]/x": false, "http://[fd00::1]/x": false, "http://[::ffff:10.0.0.5]/x": false,
		"http://100.64.0.1/x": false, "http://[64:ff9b::7f00:1]/x": false,
		"https://images.example/x#sums=http://10.0.0.5/sums": false} {
		if err := all.Check(address); (err == nil) != want {
			t.Errorf("%s: %v", address, err)
		}
	}
	if err := listed.Check("http://10.0.0.5:8080/images/x"); err != nil {
		t.Errorf("what an operator lists: %v", err)
	}
}
