package image

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"croft"
	"croft/compute"
)

func TestFetchKeepsWhatItFetched(t *testing.T) {
	content := rawImage(1, 1<<20)
	s, c := newServer(t, content), newCache(t)
	img := fetch(t, c, s.ref())
	want := compute.CachedImage{Path: filepath.Join(c.store.dir, sha(content)+".raw"), Format: "raw",
		VirtualSize: 1 << 20,
		Digest:      sha(content)}
	if img != want {
		t.Errorf("got %+v, want %+v", img, want)
	}
	contentIs(t, img.Path, content)
	fi, err := os.Stat(img.Path)
	if err != nil || fi.Mode().Perm() != 0o640 {
		t.Errorf("the hypervisor's group must be able to read it and nobody else: mode %v, %v", fi.Mode(), err)
	}
	if left := listDir(t, c.staging.dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestFetchReadsQcow2(t *testing.T) {
	name := made(t, "qcow2", "3G")
	s, c := newServer(t, read(t, name)), newCache(t)
	if img := fetch(t, c, s.ref()); img.Format != "qcow2" || img.VirtualSize != 3<<30 ||
		filepath.Ext(img.Path) != ".qcow2" {
		t.Errorf("got %+v, want a qcow2 image of 3 GiB", img)
	}
}

func TestFetchAsksWhetherThereIsANewerOne(t *testing.T) {
	for _, v := range []struct {
		name string
		set  func(*server)
	}{
		{"by its ETag", func(s *server) { s.modified = time.Time{} }},
		{"by its time of modification", func(s *server) { s.etag = "" }},
	} {
		t.Run(v.name, func(t *testing.T) {
			s, c := newServer(t, rawImage(1, 1<<20)), newCache(t)
			v.set(s)
			first := fetch(t, c, s.ref())
			c = again(t, c)
			if got := fetch(t, c, s.ref()); got != first {
				t.Errorf("got %+v, want the same as before, %+v", got, first)
			}
			r := s.requests()[1]
			if r.Header.Get("If-None-Match") == "" && r.Header.Get("If-Modified-Since") == "" {
				t.Errorf("the second request is not conditional: %v", r.Header)
			}
			newer := rawImage(2, 1<<20)
			s.set(func() { s.content, s.modified = newer, s.modified.AddDate(1, 0, 0) })
			if s.etag != "" {
				s.set(func() { s.etag = `"v2"` })
			}
			if got := fetch(t, c, s.ref()); got.Digest != sha(newer) {
				t.Errorf("the newer image was not fetched")
			}
		})
	}
}

func TestFetchDoesNotAskWhatItAskedJustNow(t *testing.T) {
	s, c := newServer(t, rawImage(1, 1<<20)), newCache(t, func(conf *Config) { conf.Fresh = time.Hour })
	fetch(t, c, s.ref())
	fetch(t, c, s.ref())
	if n := len(s.requests()); n != 1 {
		t.Errorf("%d requests within the time a copy counts as fresh, want 1", n)
	}
}

func TestFetchUsesTheCacheWhenTheServerIsSilent(t *testing.T) {
	content := rawImage(1, 1<<20)
	s, c := newServer(t, content), newCache(t)
	for _, ref := range []string{s.ref(), s.ref() + "#sha256=" + sha(content), s.ref() + "#sums=SUMS"} {
		s.withSums(func() string { return sha(content) + "  disk.img\n" })
		fetch(t, c, ref)
		for name, trouble := range map[string]int{"overloaded": 503, "broken": 500} {
			s.answers(status(trouble))
			if img := fetch(t, c, ref); img.Digest != sha(content) {
				t.Errorf("%s, server %s: got %+v", ref, name, img)
			}
		}
	}
	s.Close()
	fetch(t, c, s.ref())
}

func TestFetchOfAPinnedImageNeedsNoServerTwice(t *testing.T) {
	content := rawImage(1, 1<<20)
	s, c := newServer(t, content), newCache(t)
	for _, pin := range []string{"#sha256=" + sha(content), "#sha512=" + sha512of(content)} {
		fetch(t, c, s.ref()+pin)
		before := len(s.requests())
		fetch(t, again(t, c), s.ref()+pin)
		if n := len(s.requests()); n != before {
			t.Errorf("%s: %d more requests for what the cache has", pin[:7], n-before)
		}
	}
	if images := cacheHas(t, c); len(images) != 1 {
		t.Errorf("the same content is kept as %v", images)
	}
}

func TestFetchVerifies(t *testing.T) {
	content := rawImage(1, 1<<20)
	wrong := strings.Repeat("0", 64)
	for _, v := range []struct {
		name, fragment, list string
		kind                 croft.Kind // empty: no error
		words                []string
	}{
		{"a right sha256", "sha256=" + sha(content), "", "", nil},
		{"a right sha512", "sha512=" + sha512of(content), "", "", nil},
		{"capital letters count the same", "sha256=" + strings.ToUpper(sha(content)), "", "", nil},
		{"a wrong sha256 names both", "sha256=" + wrong, "", croft.Invalid,
			[]string{wrong, sha(content), "correct the checksum"}},
		{"a wrong sha512", "sha512=" + wrong + wrong, "", croft.Invalid, []string{wrong, sha512of(content)}},
		{"the publisher's list", "sums=SUMS", sha(content) + "  disk.img\n", "", nil},
		{"the publisher's list in sha512", "sums=SUMS", sha512of(content) + " *disk.img\n", "", nil},
		{"a list with another checksum", "sums=SUMS", wrong + "  disk.img\n", croft.Invalid,
			[]string{wrong, sha(content), "/SUMS"}},
		{"a list without the image", "sums=SUMS", wrong + "  other.img\n" + wrong + "  third.img\n", croft.Invalid,
			[]string{"disk.img", "/SUMS"}},
		{"a list of MD5 only", "sums=SUMS", "d41d8cd98f00b204e9800998ecf8427e  disk.img\n", croft.Invalid,
			[]string{"sha256 or sha512"}},
		{"a list that is not there", "sums=GONE", "", croft.NotFound, []string{"/GONE", "404"}},
	} {
		t.Run(v.name, func(t *testing.T) {
			s, c := newServer(t, content), newCache(t)
			s.answers(func(w http.ResponseWriter, r *http.Request) bool {
				switch r.URL.Path {
				case "/SUMS":
					fmt.Fprint(w, v.list)
				case "/GONE":
					w.WriteHeader(404)
				default:
					return false
				}
				return true
			})
			img, err := c.Fetch(t.Context(), s.ref()+"#"+v.fragment, nil)
			if v.kind == "" {
				if err != nil || img.Digest != sha(content) {
					t.Fatalf("got %+v, %v", img, err)
				}
				return
			}
			refused(t, c, err, v.kind, v.words...)
			if images := cacheHas(t, c); len(images) > 0 {
				t.Errorf("in the cache: %v", images)
			}
		})
	}
}

func TestFetchSaysWhatIsWrong(t *testing.T) {
	content := rawImage(1, 1<<20)
	page := append([]byte("<!DOCTYPE html>\n<title>Log in</title>"), make([]byte, 4<<10)...)
	for _, v := range []struct {
		name   string
		answer func(http.ResponseWriter, *http.Request) bool
		kind   croft.Kind
		words  []string
	}{
		{"nothing at the address", status(404), croft.NotFound, []string{"404 Not Found", "check the address"}},
		{"gone for good", status(410), croft.NotFound, []string{"410 Gone"}},
		{"not for everybody", status(403), croft.Invalid, []string{"403 Forbidden"}},
		{"a broken server", status(500), croft.Unavailable, []string{"500", "try again later"}},
		{"an overloaded server", status(429), croft.Unavailable, []string{"429"}},
		{"an answer nobody asked for", status(304), croft.Invalid, []string{"304"}},
		{"an empty file", status(200), croft.Invalid, []string{"empty"}},
		{"a web page", lengthOf(len(page), page), croft.Invalid, []string{"web page"}},
		{"a length that is never reached", lengthOf(2<<20, content), croft.Unavailable, []string{"cut the connection"}},
	} {
		t.Run(v.name, func(t *testing.T) {
			s, c := newServer(t, nil), newCache(t)
			s.set(func() { s.etag, s.answer = "", v.answer })
			_, err := c.Fetch(t.Context(), s.ref(), nil)
			if v.name == "a length that is never reached" {
				refused(t, nil, err, v.kind, v.words...) // kept for resuming
				return
			}
			refused(t, c, err, v.kind, append(v.words, s.ref())...)
		})
	}
	t.Run("nobody listens", func(t *testing.T) {
		s, c := newServer(t, content), newCache(t)
		s.Close()
		_, err := c.Fetch(t.Context(), s.ref(), nil)
		refused(t, c, err, croft.Unavailable, "refuses the connection")
	})
}

func TestFetchSharesOneDownload(t *testing.T) {
	content := rawImage(1, 2<<20)
	s, c := newServer(t, content), newCache(t)
	all, here := make(chan struct{}), make(chan struct{})
	s.answers(func(http.ResponseWriter, *http.Request) bool { close(here); <-all; return false })
	const callers = 10
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			var last croft.Progress
			img, err := c.Fetch(t.Context(), s.ref(), func(p croft.Progress) { last = p })
			if err != nil || img.Digest != sha(content) {
				t.Errorf("got %+v, %v", img, err)
			}
			if want := (croft.Progress{Done: 2 << 20, Total: 2 << 20}); last != want {
				t.Errorf("the last progress is %+v, want %+v", last, want)
			}
		})
	}
	<-here
	waitFor(t, func() bool { c.inflight.mu.Lock(); defer c.inflight.mu.Unlock(); return waiters(c) == callers })
	close(all)
	wg.Wait()
	if n := len(s.requests()); n != 1 {
		t.Errorf("%d requests for %d callers", n, callers)
	}
}

func waiters(c *Cache) (n int) {
	for _, f := range c.inflight.all {
		n += f.waiters
	}
	return n
}

// waitFor polls until the test's deadline.
func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal("the test ended before")
		}
	}
}

func TestFetchGoesOnWhileSomebodyWaits(t *testing.T) {
	content := rawImage(1, 2<<20)
	s, c := newServer(t, content), newCache(t)
	gate := make(chan struct{})
	s.answers(func(http.ResponseWriter, *http.Request) bool { <-gate; return false })
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := c.Fetch(ctx, s.ref(), nil); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want the caller's own end", err)
		}
	})
	wg.Go(func() {
		if _, err := c.Fetch(t.Context(), s.ref(), nil); err != nil {
			t.Errorf("one caller's end ended another's fetch: %v", err)
		}
	})
	waitFor(t, func() bool { c.inflight.mu.Lock(); defer c.inflight.mu.Unlock(); return waiters(c) == 2 })
	cancel()
	waitFor(t, func() bool { c.inflight.mu.Lock(); defer c.inflight.mu.Unlock(); return waiters(c) == 1 })
	close(gate)
	wg.Wait()
}

func TestFetchEndsWithItsLastCaller(t *testing.T) {
	s, c := newServer(t, rawImage(1, 2<<20)), newCache(t)
	here := make(chan struct{})
	s.answers(func(_ http.ResponseWriter, r *http.Request) bool { close(here); <-r.Context().Done(); return true })
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { <-here; cancel() })
	_, err := c.Fetch(ctx, s.ref(), nil)
	wg.Wait()
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if len(c.inflight.all) != 0 {
		t.Errorf("a fetch goes on that nobody waits for")
	}
	s.answers(nil)
	fetch(t, c, s.ref())
}
