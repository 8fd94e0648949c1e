package image

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"croft"
	"croft/compute/image/format"
)

// tools are the compression programs that publishers use.
var tools = map[string][]string{
	"gzip": {"gzip", "-c"},
	"xz":   {"xz", "-c", "-T1"},
	"zstd": {"zstd", "-q", "-c"},
}

// packed returns content packed by a tool.
func packed(t *testing.T, tool string, content []byte, more ...string) []byte {
	t.Helper()
	name := writeFile(t, filepath.Join(t.TempDir(), "disk"), content)
	args := append(append([]string{}, tools[tool][1:]...), more...)
	return []byte(qemu(t, tools[tool][0], append(args, name)...))
}

func TestFetchUnpacks(t *testing.T) {
	content := rawImage(1, 1<<20)
	for tool := range tools {
		body := packed(t, tool, content)
		t.Run(tool+" from a server", func(t *testing.T) {
			s, c := newServer(t, body), newCache(t)
			s.withSums(func() string { return sha512of(body) + "  disk.img\n" })
			for _, fragment := range []string{"", "#sha256=" + sha(body), "#sha512=" + sha512of(body), "#sums=SUMS"} {
				img := fetch(t, c, s.ref()+fragment)
				if img.Format != "raw" || img.Digest != sha(content) || img.VirtualSize != 1<<20 {
					t.Fatalf("%q: %+v", fragment, img)
				}
				contentIs(t, img.Path, content)
			}
			if left := listDir(t, c.staging.dir); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			// A verified image is found by its published checksum.
			before := len(s.requests())
			fetch(t, again(t, c), "http://elsewhere.invalid/x#sha256="+sha(body))
			if n := len(s.requests()) - before; n != 0 {
				t.Errorf("%d requests for an image that is in the cache", n)
			}
		})
		t.Run(tool+" from a file", func(t *testing.T) {
			c := newCache(t)
			name := writeFile(t, filepath.Join(t.TempDir(), "disk.raw.packed"), body)
			img := fetch(t, c, name)
			contentIs(t, img.Path, content)
			if again := fetch(t, c, name+"#sha256="+sha(body)); again != img {
				t.Errorf("got %+v, then %+v", img, again)
			}
		})
		t.Run(tool+" with a wrong checksum is never unpacked", func(t *testing.T) {
			s, c := newServer(t, body), newCache(t)
			_, err := c.Fetch(t.Context(), s.ref()+"#sha256="+sha(content), nil)
			refused(t, c, err, croft.Invalid, sha(body))
		})
	}
}

func TestFetchUnpacksSeveralStreamsAndKeepsHoles(t *testing.T) {
	content := rawImage(1, 1<<20)
	for tool := range tools {
		body := append(packed(t, tool, content), packed(t, tool, make([]byte, 16<<20))...)
		s, c := newServer(t, body), newCache(t)
		img := fetch(t, c, s.ref())
		fi, err := os.Stat(img.Path)
		if err != nil || fi.Size() != 17<<20 || allocated(fi) > 4<<20 {
			t.Errorf("%s: %d bytes on the disk for %d, %v", tool, allocated(fi), fi.Size(), err)
		}
	}
}

func TestFetchResumesWhatIsPacked(t *testing.T) {
	content := rawImage(1, 3<<20)
	body := packed(t, "gzip", content)
	s, c := newServer(t, body), newCache(t)
	s.cut(len(body)/2, 0, 0, 0)
	_, err := c.Fetch(t.Context(), s.ref(), nil)
	refused(t, nil, err, croft.Unavailable)
	s.set(func() { s.cutAfter = nil })
	contentIs(t, fetch(t, again(t, c), s.ref()).Path, content)
	if s.ranges() == "" {
		t.Error("the next fetch began anew")
	}
}

func TestFetchRefusesPackedImagesThatAreNotRight(t *testing.T) {
	disk := rawImage(1, 256<<10)
	backed := read(t, made(t, "qcow2", "1G", "-b", made(t, "qcow2", "1G"), "-F", "qcow2"))
	flipped := func(b []byte) []byte { b = bytes.Clone(b); b[len(b)/2] ^= 0xff; return b }
	for tool := range tools {
		for _, v := range []struct {
			name    string
			content []byte
			words   string
		}{
			{"cut short", packed(t, tool, disk)[:2000], "damaged"},
			{"cut in its header", packed(t, tool, disk)[:6], ""},
			{"damaged", flipped(packed(t, tool, disk)), "damaged"},
			{"followed by other bytes", append(packed(t, tool, disk), "more"...), "damaged"},
			{"of nothing", packed(t, tool, nil), "empty"},
			{"of text", packed(t, tool, []byte("hello")), "not a disk image"},
			{"packed twice", packed(t, tool, packed(t, tool, disk)), "packed with " + tool},
			{"with a backing file", packed(t, tool, backed), "backing file"},
		} {
			if tool == "gzip" && v.name == "followed by other bytes" {
				continue // as gzip itself does, they are ignored
			}
			t.Run(tool+" "+v.name, func(t *testing.T) {
				s, c := newServer(t, v.content), newCache(t)
				_, err := c.Fetch(t.Context(), s.ref(), nil)
				refused(t, c, err, croft.Invalid, v.words)
			})
		}
	}
}

// bomb packs size bytes of zeros after a boot record.
func bomb(t *testing.T, pack func(io.Writer) io.WriteCloser, bootable bool, size int64) []byte {
	t.Helper()
	var b bytes.Buffer
	w := pack(&b)
	block := make([]byte, 1<<20)
	for n := int64(0); n < size; n += int64(len(block)) {
		copy(block[510:], "\x00\x00")
		if n == 0 && bootable {
			copy(block[510:], "\x55\xaa")
		}
		if _, err := w.Write(block); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gzipped(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }

func TestFetchDefusesBombs(t *testing.T) {
	body := bomb(t, gzipped, true, 96<<20)
	if len(body) > 1<<20 {
		t.Fatalf("a bomb of %d bytes", len(body))
	}
	t.Run("more than the cache may hold", func(t *testing.T) {
		s, c := newServer(t, body), newCache(t, func(conf *Config) { conf.MaxBytes = 64 << 20 })
		_, err := c.Fetch(t.Context(), s.ref(), nil)
		refused(t, c, err, croft.Invalid, "unpacked it has more than the 64 MiB")
	})
	t.Run("more than the disk has room for", func(t *testing.T) {
		s, c := newServer(t, body), newCache(t)
		asked := 0
		c.space.free = func(string) (int64, error) { asked++; return slack + 64<<20 - int64(asked)*roomEvery, nil }
		_, err := c.Fetch(t.Context(), s.ref(), nil)
		refused(t, c, err, croft.Unavailable, "free some space")
	})
	t.Run("endless zeros that are no disk", func(t *testing.T) {
		s, c := newServer(t, bomb(t, gzipped, false, 96<<20)), newCache(t)
		asked := 0
		c.space.free = func(string) (int64, error) { asked++; return 1 << 40, nil }
		_, err := c.Fetch(t.Context(), s.ref(), nil)
		refused(t, c, err, croft.Invalid, "not a disk image")
		if asked > 2 { // once for the download, once at the start of unpacking
			t.Errorf("unpacked on after its beginning: %d looks at the room", asked)
		}
	})
	for tool, pack := range map[string][]byte{
		"zstd": []byte("\x28\xb5\x2f\xfd\x00\xa8\x01\x00\x00"), // a frame with a window of 2 GiB
		"xz":   packed(t, "xz", rawImage(1, 1<<20), "--lzma2=preset=0,dict=1GiB"),
	} {
		t.Run("a window that takes the memory: "+tool, func(t *testing.T) {
			s, c := newServer(t, pack), newCache(t)
			_, err := c.Fetch(t.Context(), s.ref(), nil)
			refused(t, c, err, croft.Invalid, "128 MiB of memory")
		})
	}
}

func TestFetchOfABombNamesTheServersFile(t *testing.T) {
	s, c := newServer(t, nil), newCache(t, func(conf *Config) { conf.MaxBytes = 1 << 20 })
	s.answers(func(w http.ResponseWriter, _ *http.Request) bool {
		w.Write(bomb(t, gzipped, true, 8<<20))
		return true
	})
	_, err := c.Fetch(t.Context(), s.ref(), nil)
	refused(t, c, err, croft.Invalid, "/disk.img: ", "1 MiB")
}

func FuzzUnpack(f *testing.F) {
	disk := rawImage(1, 4096)
	var gz, zs bytes.Buffer
	w := gzip.NewWriter(&gz)
	w.Write(disk)
	w.Close()
	z, err := zstd.NewWriter(&zs)
	if err != nil {
		f.Fatal(err)
	}
	z.Write(disk)
	z.Close()
	f.Add(gz.Bytes())
	f.Add(zs.Bytes())
	f.Add([]byte("\xfd7zXZ\x00\x00\x04\xe6\xd6\xb4\x46\x00\x00\x00\x00\x1c\xdf\x44\x21\x1f\xb6\xf3\x7d\x01\x00\x00\x00\x00\x04YZ"))
	c, err := New(Config{Dir: f.TempDir(), MaxBytes: 1 << 20})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, ok := format.PackingOf(b)
		if !ok {
			return
		}
		name := writeFile(t, filepath.Join(t.TempDir(), "x"), b)
		src, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer src.Close()
		d, err := c.copier.unpacker.unpack(t.Context(), p, candidate{f: src, path: name, size: int64(len(b))})
		if err != nil {
			if k := croft.KindOf(err); k != croft.Invalid {
				t.Errorf("kind %q: %v", k, err)
			}
			return
		}
		defer d.discard()
		if d.size > 1<<20 || !strings.HasSuffix(d.path, tempSuffix) {
			t.Errorf("unpacked %d bytes to %s", d.size, d.path)
		}
	})
}
