package image

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestLookFindsAnImageByWhatItWasFetchedAs(t *testing.T) {
	content := rawImage(1, 1<<20)
	body := packed(t, "gzip", content)
	s, c := newServer(t, body), newCache(t)
	img := fetch(t, c, s.ref())
	fetch(t, c, s.ref()+"#sha512="+sha512of(body))
	have, err := Look(c.store.dir)
	if err != nil || len(have.Images) != 1 {
		t.Fatalf("got %+v, %v", have, err)
	}
	if got := have.Images[0]; got.Path != img.Path || got.SHA256 != img.Digest || got.VirtualSize != 1<<20 ||
		got.Disks != 0 || len(got.References) != 2 {
		t.Errorf("got %+v", got)
	}
	for ref, want := range map[string]bool{
		s.ref():                                    true,
		s.ref() + "#sha256=" + sha(body):           true, // the published checksum
		"http://e/x#sha512=" + sha512of(body):      true,
		"http://e/x#sha256=" + img.Digest:          true, // the cached file's checksum
		"http://e/x":                               false,
		"http://e/x#sha256=" + sha([]byte("else")): false,
		"no reference":                             false,
	} {
		if _, ok := have.Of(ref); ok != want {
			t.Errorf("%s: found is %v, want %v", ref, ok, want)
		}
	}
	if have, err := Look(filepath.Join(t.TempDir(), "none")); err != nil || len(have.Images) != 0 {
		t.Errorf("no cache: %+v, %v", have, err)
	}
}

func TestPruneBesideAnAgent(t *testing.T) {
	c := newCache(t)
	age := func(name string, d time.Duration) {
		when := time.Now().Add(-d)
		if err := os.Chtimes(name, when, when); err != nil {
			t.Fatal(err)
		}
	}
	s := newServer(t, rawImage(1, 1<<20))
	unused, based, fresh := fetch(t, c, s.ref()), stored(t, c, rawImage(2, 1<<20)), stored(t, c, rawImage(3, 1<<20))
	layers, err := c.Disk(t.Context(), based, t.TempDir(), 1)
	if err != nil {
		t.Fatal(err)
	}
	age(unused.Path, time.Hour)
	age(based.Path, time.Hour)
	for _, dry := range []bool{true, false} {
		removed, err := Prune(c.store.dir, dry)
		if err != nil || len(removed) != 1 || removed[0].Path != unused.Path {
			t.Fatalf("dry %v: %+v, %v; want %s alone", dry, removed, err, unused.Path)
		}
		if _, err := os.Stat(unused.Path); (err == nil) != dry {
			t.Errorf("dry %v: %v", dry, err)
		}
	}
	for _, kept := range []string{based.Path, fresh.Path, layers[1].Path} {
		if _, err := os.Stat(kept); err != nil {
			t.Errorf("gone: %v", err)
		}
	}
	if removed, err := Prune(c.store.dir, false); err != nil || len(removed) != 0 {
		t.Errorf("a second time: %+v, %v", removed, err)
	}
	// The agent, which was not notified, fetches again.
	if got := fetch(t, c, s.ref()); got != unused {
		t.Errorf("got %+v, want %+v", got, unused)
	}
	contentIs(t, unused.Path, s.content)
}
