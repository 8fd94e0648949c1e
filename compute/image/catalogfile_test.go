package image

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"croft"
)

func TestAddToCatalogWritesWhatIsReadBack(t *testing.T) {
	sum := strings.Repeat("a", 64)
	for _, v := range []struct{ name, before string }{
		{"there is no file", ""},
		{"there are only comments", "# ours\n"},
		{"there are others", "# ours\nold: {url: /old}  # an old one\n"},
		{"the file does not end its last line", "old: {url: /old}"},
	} {
		t.Run(v.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "croft", "images.yaml")
			if v.before != "" {
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				writeFile(t, file, []byte(v.before))
			}
			want := Entry{Name: "web", URL: "https://e/web.qcow2", SHA256: sum, User: "me", Description: "it's #1: web"}
			if err := AddToCatalog(file, nil, want, false); err != nil {
				t.Fatal(err)
			}
			c, err := LoadCatalog([]string{file}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := c.Resolve("web"); err != nil || got != want {
				t.Errorf("got %+v, %v; want %+v\n%s", got, err, want, read(t, file))
			}
			text := string(read(t, file))
			for _, kept := range []string{"# ours", "# an old one", "/old"} {
				if strings.Contains(v.before, kept) && !strings.Contains(text, kept) {
					t.Errorf("%q is gone:\n%s", kept, text)
				}
			}
			if names := listDir(t, filepath.Dir(file)); len(names) != 1 {
				t.Errorf("left beside it: %v", names)
			}
		})
	}
}

func TestAddToCatalogFollowsALink(t *testing.T) {
	dir := t.TempDir()
	target := writeFile(t, filepath.Join(dir, "kept-in-git.yaml"), nil)
	link := filepath.Join(dir, "images.yaml")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if err := AddToCatalog(link, nil, Entry{Name: "web", URL: "/srv/web"}, false); err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Lstat(link); err != nil || fi.Mode()&os.ModeSymlink == 0 ||
		!strings.Contains(string(read(t, target)), "/srv/web") {
		t.Errorf("the link is replaced: %v, %v", fi.Mode(), err)
	}
}

func TestManyAddToACatalogAtOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "images.yaml")
	const many = 20
	var work sync.WaitGroup
	for i := range many {
		work.Go(func() {
			if err := AddToCatalog(file, nil, Entry{Name: fmt.Sprintf("image-%d", i), URL: "/srv/x"},
				false); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	c, err := LoadCatalog([]string{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range many {
		if _, err := c.Resolve(fmt.Sprintf("image-%d", i)); err != nil {
			t.Error(err)
		}
	}
}

func TestAddToCatalogRefusesAFileThatIsNone(t *testing.T) {
	for _, text := range []string{"- a\n- b\n", "just words", "{"} {
		file := writeFile(t, filepath.Join(t.TempDir(), "images.yaml"), []byte(text))
		err := AddToCatalog(file, nil, Entry{Name: "web", URL: "/srv/web"}, true)
		refused(t, nil, err, croft.Invalid, file)
		if got := string(read(t, file)); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}
