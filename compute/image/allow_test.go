package image

import (
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"croft"
)

func TestFilesAreTakenFromAllowedDirectoriesAlone(t *testing.T) {
	dir := t.TempDir()
	images, other := filepath.Join(dir, "images"), filepath.Join(dir, "images-other")
	for _, d := range []string{filepath.Join(images, "sub"), other} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	disk := rawImage(1, 1<<20)
	inside := writeFile(t, filepath.Join(images, "sub", "disk.raw"), disk)
	outside := writeFile(t, filepath.Join(other, "disk.raw"), disk)
	for link, target := range map[string]string{"out": outside, "up": "../images-other/disk.raw", "in": "sub/disk.raw",
		"dir": other} {
		if err := os.Symlink(target, filepath.Join(images, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, v := range []struct {
		name  string
		allow []string
		ref   string
		kind  croft.Kind // empty: accepted
		words string
	}{
		{"any file, where nothing is said", nil, outside, "", ""},
		{"any file, by a link too", nil, filepath.Join(images, "out"), "", ""},
		{"any file, where the root is named", []string{"/"}, outside, "", ""},
		{"a file in the directory", []string{images}, inside, "", ""},
		{"its URL", []string{images}, "file://" + inside, "", ""},
		{"one in the second directory", []string{images, other + "/"}, outside, "", ""},
		{"a link that stays in the directory", []string{images}, filepath.Join(images, "in"), "", ""},

		{"no file at all", []string{}, inside, croft.Invalid, "images.allow_files"},
		{"a directory whose name begins so", []string{images}, outside, croft.Invalid, "images.allow_files"},
		{"a way out by dots", []string{images}, images + "/../images-other/disk.raw", croft.Invalid,
			"images.allow_files"},
		{"a way out by dots in a URL", []string{images}, "file://" + images + "/%2e%2e/images-other/disk.raw",
			croft.Invalid, "images.allow_files"},
		{"a link that leads out", []string{images}, filepath.Join(images, "out"), croft.Invalid, "cannot be opened"},
		{"a relative link that leads out", []string{images}, filepath.Join(images, "up"), croft.Invalid,
			"cannot be opened"},
		{"a file in a linked directory", []string{images}, filepath.Join(images, "dir", "disk.raw"), croft.Invalid,
			"cannot be opened"},
		{"a file elsewhere that is not there is told from none", []string{images}, filepath.Join(other, "none"),
			croft.Invalid, "images.allow_files"},
		{"a file that is not there", []string{images}, filepath.Join(images, "none"), croft.NotFound, "no such file"},
	} {
		t.Run(v.name, func(t *testing.T) {
			c := newCache(t, func(conf *Config) { conf.AllowFiles = v.allow })
			img, err := c.Fetch(t.Context(), v.ref, nil)
			if v.kind != "" {
				refused(t, c, err, v.kind, v.words)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			contentIs(t, img.Path, disk)
		})
	}
	_, err := New(Config{Dir: filepath.Join(dir, "cache"), AllowFiles: []string{"images"}})
	refused(t, nil, err, croft.Invalid, "absolute path")
}

func TestKeyringsElsewhereAreNotReadWhereFilesAreNotAllowed(t *testing.T) {
	content := rawImage(1, 1<<20)
	publisher := newSigner(t)
	keyring := publisher.keyring(false)
	s := newServer(t, content)
	s.serves(map[string]string{"/SUMS": publisher.clear(sha(content) + "  disk.img\n")})
	ref := s.ref() + "#sums=SUMS&signed-by=" + url.QueryEscape(keyring)
	c := newCache(t, func(conf *Config) { conf.AllowFiles = []string{} })
	_, err := c.Fetch(t.Context(), ref, nil)
	refused(t, c, err, croft.Invalid, keyring, "images.allow_files")
	c = newCache(t, func(conf *Config) { conf.AllowFiles = []string{filepath.Dir(keyring)} })
	fetch(t, c, ref)
}
