package image

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"croft"
	"croft/compute/image/format"
)

func TestFetchTakesACutDownloadUpAgain(t *testing.T) {
	content := rawImage(1, 3<<20)
	s, c := newServer(t, content), newCache(t)
	s.cut(1<<20, 1<<20)
	img := fetch(t, c, s.ref())
	contentIs(t, img.Path, content)
	all := s.requests()
	if len(all) != 3 {
		t.Fatalf("%d requests (%s), want 3", len(all), s.ranges())
	}
	if got := all[1].Header.Get("If-Range"); got != `"v1"` {
		t.Errorf("If-Range %q would join two versions", got)
	}
	if all[1].Header.Get("Range") == "" || all[2].Header.Get("Range") == "" {
		t.Errorf("ranges %q: a request asked for the whole again", s.ranges())
	}
}

func TestFetchGivesUpWhenNothingMoreComes(t *testing.T) {
	s, c := newServer(t, rawImage(1, 3<<20)), newCache(t)
	s.cut(1<<20, 0, 0, 0, 0, 0)
	_, err := c.Fetch(t.Context(), s.ref(), nil)
	refused(t, nil, err, croft.Unavailable, "cut the connection")
	if n := len(s.requests()); n != 1+maxTries {
		t.Errorf("%d requests, want %d", n, 1+maxTries)
	}
	// The received data is kept.
	s.set(func() { s.cutAfter, s.seen = nil, nil })
	img := fetch(t, c, s.ref())
	contentIs(t, img.Path, s.content)
	if s.ranges() == "" {
		t.Errorf("the next fetch began anew")
	}
}

func TestFetchNeverJoinsTwoVersions(t *testing.T) {
	older, newer := rawImage(1, 3<<20), rawImage(2, 3<<20)
	change := func(s *server) { s.set(func() { s.content, s.etag = newer, `"v2"` }) }
	for _, v := range []struct {
		name   string
		etag   string
		answer func(s *server) func(http.ResponseWriter, *http.Request) bool
	}{
		{"the server heeds If-Range", `"v1"`, nil},
		{"the server has only weak ETags", `W/"v1"`, nil},
		{"the server ignores If-Range and names the version", `"v1"`,
			func(s *server) func(http.ResponseWriter, *http.Request) bool {
				return func(w http.ResponseWriter, r *http.Request) bool { r.Header.Del("If-Range"); return false }
			}},
		{"the server answers a range with the whole", `"v1"`,
			func(s *server) func(http.ResponseWriter, *http.Request) bool {
				return func(w http.ResponseWriter, r *http.Request) bool { r.Header.Del("Range"); return false }
			}},
		{"the server answers another range", `"v1"`, func(s *server) func(http.ResponseWriter, *http.Request) bool {
			return func(w http.ResponseWriter, r *http.Request) bool {
				if r.Header.Get("Range") != "" {
					r.Header.Set("Range", "bytes=7-")
					r.Header.Del("If-Range")
				}
				return false
			}
		}},
		{"the file has become shorter than what came", `"v1"`,
			func(s *server) func(http.ResponseWriter, *http.Request) bool {
				return func(w http.ResponseWriter, r *http.Request) bool {
					if r.Header.Get("Range") != "" {
						w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
						return true
					}
					return false
				}
			}},
	} {
		t.Run(v.name, func(t *testing.T) {
			s, c := newServer(t, older), newCache(t)
			s.set(func() { s.etag, s.modified = v.etag, time.Time{} })
			s.cut(2<<20, 0, 0, 0)
			_, err := c.Fetch(t.Context(), s.ref(), nil)
			refused(t, nil, err, croft.Unavailable)
			change(s)
			s.set(func() {
				s.cutAfter = nil
				if v.answer != nil {
					s.answer = v.answer(s)
				}
			})
			img := fetch(t, again(t, c), s.ref())
			contentIs(t, img.Path, newer)
		})
	}
}

func TestFetchBeginsAnewWhenResumingSpoiltTheChecksum(t *testing.T) {
	older, newer := rawImage(1, 3<<20), rawImage(2, 3<<20)
	s, c := newServer(t, older), newCache(t)
	ref := s.ref() + "#sha256=" + sha(newer)
	s.cut(2<<20, 0, 0, 0)
	_, err := c.Fetch(t.Context(), ref, nil)
	refused(t, nil, err, croft.Unavailable)
	s.set(func() { s.content, s.cutAfter = newer, nil }) // the same ETag: a lying server
	contentIs(t, fetch(t, c, ref).Path, newer)
}

func TestFetchAfterAKill(t *testing.T) {
	content := rawImage(1, 3<<20)
	s := newServer(t, content)
	s.cut(2<<20, 0, 0, 0)
	c := newCache(t)
	_, err := c.Fetch(t.Context(), s.ref(), nil)
	refused(t, nil, err, croft.Unavailable)
	var part string
	for _, name := range listDir(t, c.staging.dir) {
		if strings.HasSuffix(name, stagingSuffix) {
			part = filepath.Join(c.staging.dir, name)
		}
	}
	if part == "" {
		t.Fatal("no download to take up again")
	}
	// Data after the last sync is undefined after a crash.
	f, err := os.OpenFile(part, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.Write(make([]byte, 12345))
	f.Close()
	litter := []string{
		writeFile(t, filepath.Join(c.store.dir, "index.json.tmp"), []byte("{")),
		writeFile(t, filepath.Join(c.staging.dir, "alone.part"), content[:99]),
		writeFile(t, filepath.Join(c.staging.dir, "alone2.json"), []byte("{}")),
	}
	s.set(func() { s.seen, s.cutAfter = nil, nil })

	c = again(t, c)
	for _, name := range litter {
		if _, err := os.Stat(name); err == nil {
			t.Errorf("%s is still there", name)
		}
	}
	contentIs(t, fetch(t, c, s.ref()).Path, content)
	if got, want := s.ranges(), "bytes=2097152-"; got != want {
		t.Errorf("ranges %q, want %q", got, want)
	}
}

func TestFetchOfADownloadThatWasCompleteWhenItWasKilled(t *testing.T) {
	content := rawImage(1, 3<<20)
	s, c := newServer(t, content), newCache(t)
	ref, err := ParseReference(s.ref())
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.staging.open(ref, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.reset(validator{ETag: s.etag}, int64(len(content))); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := p.close(); err != nil {
		t.Fatal(err)
	}
	contentIs(t, fetch(t, again(t, c), s.ref()).Path, content)
	if got, want := s.ranges(), fmt.Sprintf("bytes=%d-", len(content)-1); got != want {
		t.Errorf("ranges %q, want %q: the last byte proves that it is the same version", got, want)
	}
}

func TestFetchOfAPinnedImageResumesOnAnotherMirror(t *testing.T) {
	content := rawImage(1, 3<<20)
	s, c := newServer(t, content), newCache(t)
	s.cut(1<<20, 1<<20)
	mirrors := 0
	s.set(func() {
		s.answer = func(_ http.ResponseWriter, r *http.Request) bool { // each identifies the same file in its own way
			s.set(func() { mirrors++; s.etag = fmt.Sprintf("\"mirror-%d\"", mirrors) })
			return false
		}
	})
	contentIs(t, fetch(t, c, s.ref()+"#sha256="+sha(content)).Path, content)
	if all := s.requests(); len(all) != 3 || all[2].Header.Get("Range") == "" {
		t.Errorf("%d requests, ranges %q", len(all), s.ranges())
	}
}

func TestFetchRefusesAsSoonAsItCan(t *testing.T) {
	backed := made(t, "qcow2", "1G", "-b", made(t, "qcow2", "1G"), "-F", "qcow2")
	early := append(read(t, backed), make([]byte, earlyHeader)...)
	for _, v := range []struct {
		name    string
		content []byte
		words   string
	}{
		{"another format, after its first bytes", append([]byte("KDMV"), make([]byte, format.HeadSize)...), "VMDK"},
		{"a backing file, when the header is there", early, "backing file"},
	} {
		t.Run(v.name, func(t *testing.T) {
			s, c := newServer(t, nil), newCache(t)
			s.answers(func(w http.ResponseWriter, r *http.Request) bool {
				w.Header().Set("Content-Length", fmt.Sprint(1<<30))
				w.Write(v.content)
				w.(http.Flusher).Flush()
				<-r.Context().Done() // the rest never arrives
				return true
			})
			_, err := c.Fetch(t.Context(), s.ref(), nil)
			refused(t, c, err, croft.Invalid, v.words)
		})
	}
}

func TestFetchTellsTheSizeOfWhatItHas(t *testing.T) {
	content := rawImage(1, 1<<20)
	s, c := newServer(t, content), newCache(t)
	s.withSums(func() string { return sha(content) + "  disk.img\n" })
	for _, fragment := range []string{"", "#sha256=" + sha(content), "#sha512=" + sha512of(content), "#sums=SUMS"} {
		for range 2 {
			var last croft.Progress
			if _, err := c.Fetch(t.Context(), s.ref()+fragment, func(p croft.Progress) { last = p }); err != nil {
				t.Fatal(err)
			}
			if want := (croft.Progress{Done: 1 << 20, Total: 1 << 20}); last != want {
				t.Errorf("%q: last progress %+v, want %+v", fragment, last, want)
			}
		}
	}
}

func TestFetchEndsWhenTheServerStalls(t *testing.T) {
	s := newServer(t, nil)
	c := newCache(t, func(conf *Config) { conf.Stall = 50 * time.Millisecond })
	for _, v := range []struct {
		name string
		send int
	}{{"before it answers", -1}, {"in the middle", 1 << 20}} {
		t.Run(v.name, func(t *testing.T) {
			release := make(chan struct{})
			defer close(release)
			s.answers(func(w http.ResponseWriter, r *http.Request) bool {
				if v.send >= 0 {
					w.Header().Set("Content-Length", "3145728")
					w.Write(rawImage(1, v.send))
					w.(http.Flusher).Flush()
				}
				select {
				case <-r.Context().Done():
				case <-release:
				}
				return true
			})
			_, err := c.Fetch(t.Context(), s.ref(), nil)
			refused(t, nil, err, croft.Unavailable, "sent nothing for 50ms")
		})
	}
}
