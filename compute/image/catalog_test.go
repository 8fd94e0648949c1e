package image

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/adrg/xdg"

	"croft"
)

func TestBuiltinCatalog(t *testing.T) {
	c, err := LoadCatalog(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"tiny", "debian", "debian-12", "debian-13", "ubuntu", "ubuntu-22.04", "ubuntu-24.04",
		"fedora", "rocky", "almalinux", "cirros"} {
		e, err := c.Resolve(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		s, err := e.Reference()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		ref, err := ParseReference(s)
		if err != nil {
			t.Errorf("%s: %q: %v", name, s, err)
		}
		if ref.Path == "" && ref.want() == (digest{}) && ref.Sums == "" {
			t.Errorf("%s: nothing verifies %s", name, s)
		}
		if ref.Path == "" && !strings.HasPrefix(ref.URL, "https://") {
			t.Errorf("%s: %s is not https", name, s)
		}
		if e.Description == "" || e.User == "" {
			t.Errorf("%s: description %q, user %q", name, e.Description, e.User)
		}
	}
}

func TestResolvePutsTheChecksumIntoTheReference(t *testing.T) {
	c, err := LoadCatalog(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	e, err := c.Resolve("debian-12")
	if err != nil {
		t.Fatal(err)
	}
	got, err := e.Reference()
	want := "https://cloud.debian.org/images/cloud/bookworm/latest/debian-12-genericcloud-amd64.qcow2#sums=SHA512SUMS"
	if err != nil || got != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

func TestResolve(t *testing.T) {
	sum := strings.Repeat("a", 64)
	c, err := LoadCatalog(nil, map[string]Entry{
		"mine":      {URL: "/srv/mine.img", SHA256: sum},
		"debian-12": {URL: "http://mirror/debian.qcow2"},
		"my-alias":  {Alias: "mine"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []struct{ name, in, want string }{
		{"an image of the settings", "mine", "file:///srv/mine.img#sha256=" + sum},
		{"an alias", "my-alias", "file:///srv/mine.img#sha256=" + sum},
		{"the settings go before what is built in", "debian-12", "http://mirror/debian.qcow2"},
		{"an address stays as it is", "http://e/x#sha256=" + sum, "http://e/x#sha256=" + sum},
		{"a path becomes a file URL", "/srv/x", "file:///srv/x"},
	} {
		t.Run(v.name, func(t *testing.T) {
			e, err := c.Resolve(v.in)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := e.Reference(); err != nil || got != v.want {
				t.Errorf("got %q, %v; want %q", got, err, v.want)
			}
		})
	}
	for _, v := range []struct {
		name, in string
		kind     croft.Kind
		words    string
	}{
		{"a mistyped name", "debain-12", croft.NotFound, `did you mean "debian-12"?`},
		{"a name like no other", "solaris", croft.NotFound, `no image "solaris"`},
		{"a relative path", "./disk.img", croft.Invalid, "absolute path"},
		{"a bad address", "gopher://x/y", croft.Invalid, "gopher"},
	} {
		t.Run(v.name, func(t *testing.T) {
			_, err := c.Resolve(v.in)
			refused(t, nil, err, v.kind, v.words)
		})
	}
}

func TestLoadCatalogFiles(t *testing.T) {
	dir := t.TempDir()
	etc := writeFile(t, filepath.Join(dir, "etc.yaml"),
		[]byte("web: {url: /srv/web-1.img}\nold: {url: /srv/old.img, user: me}\n"))
	own := writeFile(t, filepath.Join(dir, "own.yaml"), []byte("web: {url: /srv/web-2.img}\n"))
	empty := writeFile(t, filepath.Join(dir, "empty.yaml"), nil)
	c, err := LoadCatalog([]string{filepath.Join(dir, "missing.yaml"), etc, own, empty}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"web": "/srv/web-2.img", "old": "/srv/old.img"} {
		if e, err := c.Resolve(name); err != nil || e.URL != want {
			t.Errorf("%s: got %+v, %v; want %s", name, e, err, want)
		}
	}
	if names := c.Names(); !slices.IsSorted(names) || len(names) != len(c.List()) {
		t.Errorf("names %v", names)
	}
}

func TestLoadCatalogSaysWhatIsWrong(t *testing.T) {
	sum := strings.Repeat("a", 64)
	for _, c := range []struct{ name, text, words string }{
		{"a word that is not known", "x: {ulr: /x}", "ulr"},
		{"no YAML", "x: [", "yaml"},
		{"neither url nor alias", "x: {user: me}", "needs a url"},
		{"both url and alias", "x: {url: /x, alias: tiny}", "needs a url"},
		{"an alias of nothing", "x: {alias: tinny}", `did you mean "tiny"?`},
		{"an alias of an alias", "x: {alias: fedora}", "not an image with a url"},
		{"an alias of itself", "x: {alias: x}", "not an image with a url"},
		{"a bad checksum", "x: {url: /x, sha256: abc}", "64 hexadecimal digits"},
		{"two checksums", "x: {url: http://e/x, sha256: " + sum + ", sums: S}", "not several"},
		{"a relative path", "x: {url: disk.img}", "absolute path"},
		{"a name that looks like a path", "a/b: {url: /x}", "looks like an address"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := writeFile(t, filepath.Join(t.TempDir(), "images.yaml"), []byte(c.text))
			_, err := LoadCatalog([]string{file}, nil)
			refused(t, nil, err, croft.Invalid, c.words)
		})
	}
}

// A Finder notices a changed file at the next call.
func TestAFinderFollowsTheFiles(t *testing.T) {
	old := xdg.ConfigHome
	xdg.ConfigHome = t.TempDir()
	t.Cleanup(func() { xdg.ConfigHome = old })
	if err := os.Mkdir(filepath.Join(xdg.ConfigHome, "croft"), 0o755); err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(xdg.ConfigHome, "croft", "images.yaml")
	find := Finder(CatalogFiles())
	if _, err := find("mine"); croft.KindOf(err) != croft.NotFound {
		t.Fatalf("without the file: %v", err)
	}
	for i, url := range []string{"https://images.example/a", "https://images.example/longer"} {
		writeFile(t, own, []byte("mine: {url: "+url+"}\n"))
		if got, err := find("mine"); err != nil || got.URL != url {
			t.Errorf("file %d: %s, %v; want %s", i, got.URL, err, url)
		}
	}
}
