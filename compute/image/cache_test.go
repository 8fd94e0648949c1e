package image

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"croft"
)

func TestNewRefusesARelativeDirectory(t *testing.T) {
	for _, dir := range []string{"", "images"} {
		_, err := New(Config{Dir: dir})
		refused(t, nil, err, croft.Invalid, "absolute path")
	}
}

func TestNobodyElseReadsTheCache(t *testing.T) {
	c, dir := newCache(t), t.TempDir()
	s := newServer(t, rawImage(1, 3<<20))
	img := fetch(t, c, s.ref())
	layers := makeDisk(t, c, img, dir, 1)
	s.set(func() { s.content = rawImage(2, 3<<20) })
	s.cut(1<<20, 0, 0, 0)
	if _, err := c.Fetch(t.Context(), s.URL+"/other.img", nil); err == nil {
		t.Fatal("a download that is cut is taken")
	}
	want := map[string]os.FileMode{
		c.store.dir: 0o700, c.staging.dir: 0o700, img.Path: 0o640, layers[1].Path: 0o640, layers[0].Path: 0o600,
		c.store.indexFile(): 0o600,
	}
	names := listDir(t, c.staging.dir)
	if len(names) != 2 {
		t.Fatalf("the download has the files %v", names)
	}
	for _, name := range names {
		want[filepath.Join(c.staging.dir, name)] = 0o600
	}
	for name, want := range want {
		if fi, err := os.Stat(name); err != nil || fi.Mode().Perm() != want {
			t.Errorf("%s: mode %v, %v; want %v", name, fi.Mode().Perm(), err, want)
		}
	}
	second := newCache(t)
	s.cut(1<<20, 0, 0, 0)
	if _, err := second.Fetch(t.Context(), s.URL+"/other.img", nil); err == nil {
		t.Fatal("a download that is cut is taken")
	}
	if slices.Equal(names, listDir(t, second.staging.dir)) {
		t.Errorf("the name of a download can be foreseen: %v", names)
	}
}

func TestACacheOfAnOlderVersionIsClosedOff(t *testing.T) {
	c := newCache(t)
	used, unused := stored(t, c, rawImage(1, 1<<20)), stored(t, c, rawImage(2, 1<<20))
	makeDisk(t, c, used, t.TempDir(), 1)
	for name, mode := range map[string]os.FileMode{c.store.dir: 0o755, c.staging.dir: 0o755, used.Path: 0o644,
		unused.Path: 0o644, c.store.indexFile(): 0o644} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	again(t, c)
	// The guest's domain was defined for a world-readable file.
	for name, want := range map[string]os.FileMode{c.store.dir: 0o700, c.staging.dir: 0o700, used.Path: 0o644,
		unused.Path: 0o640, c.store.indexFile(): 0o600} {
		if fi, err := os.Stat(name); err != nil || fi.Mode().Perm() != want {
			t.Errorf("%s: mode %v, %v; want %v", name, fi.Mode().Perm(), err, want)
		}
	}
}

func TestTheCacheForgetsWhatWasUsedLeastRecently(t *testing.T) {
	const mib = 1 << 20
	c := newCache(t, func(conf *Config) { conf.MaxBytes = 5 * mib })
	dir := t.TempDir()
	var names []string
	add := func(seed uint64, age time.Duration) string {
		img := stored(t, c, rawImage(seed, 2*mib))
		when := time.Now().Add(-age)
		if err := os.Chtimes(img.Path, when, when); err != nil {
			t.Fatal(err)
		}
		names = append(names, filepath.Base(img.Path))
		return img.Path
	}
	first := add(1, 3*time.Hour)
	add(2, 2*time.Hour)
	if err := os.Link(first, filepath.Join(dir, "base.raw")); err != nil { // a linked disk
		t.Fatal(err)
	}
	add(3, time.Hour)
	if got, want := cacheHas(t, c), sorted(names[0], names[2]); !slices.Equal(got, want) {
		t.Errorf("the cache has %v, want the one a disk stands on and the newest, %v", got, want)
	}
	if err := os.Remove(filepath.Join(dir, "base.raw")); err != nil {
		t.Fatal(err)
	}
	add(4, 0)
	if got, want := cacheHas(t, c), sorted(names[2], names[3]); !slices.Equal(got, want) {
		t.Errorf("the cache has %v, want %v once no disk stands on the oldest", got, want)
	}
}

func TestTheCacheSparesWhatWasUsedJustNow(t *testing.T) {
	c := newCache(t, func(conf *Config) { conf.MaxBytes = 3 << 20 })
	c.store.grace = time.Hour
	stored(t, c, rawImage(1, 2<<20))
	stored(t, c, rawImage(2, 2<<20))
	if images := cacheHas(t, c); len(images) != 2 {
		t.Errorf("the cache has %v: an image went between its fetch and its disk", images)
	}
}

func TestUsingAnImageKeepsIt(t *testing.T) {
	c := newCache(t, func(conf *Config) { conf.MaxBytes = 5 << 20 })
	s := newServer(t, rawImage(1, 2<<20))
	kept := fetch(t, c, s.ref())
	other := stored(t, c, rawImage(2, 2<<20))
	for path, age := range map[string]time.Duration{kept.Path: 2 * time.Hour, other.Path: time.Hour} {
		when := time.Now().Add(-age)
		if err := os.Chtimes(path, when, when); err != nil {
			t.Fatal(err)
		}
	}
	fetch(t, c, s.ref())
	stored(t, c, rawImage(3, 2<<20))
	if _, err := os.Stat(kept.Path); err != nil {
		t.Errorf("the image used last was evicted: %v", err)
	}
	if _, err := os.Stat(other.Path); err == nil {
		t.Errorf("the image used least recently was kept")
	}
}

func TestADamagedImageIsFetchedAgain(t *testing.T) {
	content := rawImage(1, 1<<20)
	for _, v := range []struct {
		name   string
		damage func(string) error
	}{
		{"cut short", func(name string) error { return os.Truncate(name, 1<<19) }},
		{"overwritten with zeros", func(name string) error { return os.WriteFile(name, make([]byte, 1<<20), 0o644) }},
		{"removed", os.Remove},
	} {
		t.Run(v.name, func(t *testing.T) {
			s, c := newServer(t, content), newCache(t)
			ref := s.ref() + "#sha256=" + sha(content)
			if err := v.damage(fetch(t, c, ref).Path); err != nil {
				t.Fatal(err)
			}
			contentIs(t, fetch(t, c, ref).Path, content)
		})
	}
}

func TestADamagedIndexCostsARequestOnly(t *testing.T) {
	content := rawImage(1, 1<<20)
	s, c := newServer(t, content), newCache(t)
	fetch(t, c, s.ref())
	writeFile(t, c.store.indexFile(), []byte(`{"references": 7`))
	c = again(t, c)
	contentIs(t, fetch(t, c, s.ref()).Path, content)
}

func TestLocalFiles(t *testing.T) {
	c, name := newCache(t), filepath.Join(t.TempDir(), "disk image.raw")
	older, newer := rawImage(1, 1<<20), rawImage(2, 1<<20)
	writeFile(t, name, older)
	var last croft.Progress
	img, err := c.Fetch(t.Context(), name, func(p croft.Progress) { last = p })
	if err != nil || img.Digest != sha(older) {
		t.Fatalf("got %+v, %v", img, err)
	}
	if want := (croft.Progress{Done: 1 << 20, Total: 1 << 20}); last != want {
		t.Errorf("last progress %+v, want %+v", last, want)
	}
	if url := "file://" + strings.ReplaceAll(name, " ", "%20"); fetch(t, c, url) != img {
		t.Errorf("the path and its URL %s lead to different images", url)
	}
	// Other content of the same size at the same path.
	writeFile(t, name, newer)
	if got := fetch(t, c, name); got.Digest != sha(newer) {
		t.Errorf("the file changed and the old copy was used")
	}
	contentIs(t, img.Path, older)
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Fetch(t.Context(), name, nil); croft.KindOf(err) != croft.NotFound {
		t.Errorf("a file that is gone: %v", err)
	}
	if got := fetch(t, c, name+"#sha256="+sha(newer)); got.Digest != sha(newer) {
		t.Errorf("a pinned image needs its source no more, got %+v", got)
	}
}

func TestAnUnchangedLocalFileIsNotReadAgain(t *testing.T) {
	c, name := newCache(t), filepath.Join(t.TempDir(), "disk.raw")
	content := rawImage(1, 1<<20)
	writeFile(t, name, content)
	fi, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	img := fetch(t, c, name)
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteAt([]byte("x"), 1000)
	f.Close()
	if err := os.Chtimes(name, fi.ModTime(), fi.ModTime()); err != nil { // hide the change
		t.Fatal(err)
	}
	if got := fetch(t, again(t, c), name); got != img {
		t.Errorf("got %+v, want the copy %+v", got, img)
	}
}

func TestLocalFilesKeepTheirHoles(t *testing.T) {
	name := writeFile(t, filepath.Join(t.TempDir(), "sparse.raw"), rawImage(1, 1<<20))
	if err := os.Truncate(name, 1<<30); err != nil {
		t.Fatal(err)
	}
	c := newCache(t)
	img := fetch(t, c, name)
	fi, err := os.Stat(img.Path)
	if err != nil || fi.Size() != 1<<30 || allocated(fi) > 8<<20 {
		t.Errorf("%d bytes on the disk for %d, %v", allocated(fi), fi.Size(), err)
	}
}

func TestLocalFilesThatAreNotTaken(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o644); err != nil {
		t.Fatal(err)
	}
	sum := strings.Repeat("0", 64)
	disk := writeFile(t, filepath.Join(dir, "disk.raw"), rawImage(1, 1<<20))
	backed := filepath.Join(dir, "backed.qcow2")
	qemu(t, "qemu-img", "create", "-q", "-f", "qcow2", "-b", disk, "-F", "raw", backed)
	for _, v := range []struct {
		name, ref string
		kind      croft.Kind
		words     string
	}{
		{"a file that is not there", filepath.Join(dir, "none"), croft.NotFound, "no such file on this host"},
		{"the small guest before it is built", "/var/lib/croft/guests/no-such-guest.qcow2", croft.NotFound,
			"run make guest"},
		{"a directory", dir, croft.Invalid, "not a regular file"},
		{"a FIFO, which would block", fifo, croft.Invalid, "not a regular file"},
		{"a device, which would not end", "/dev/zero", croft.Invalid, "not a regular file"},
		{"a file of the host that is no disk", "/etc/passwd", croft.Invalid, "not a disk image"},
		{"a wrong checksum", disk + "#sha256=" + sum, croft.Invalid, sum},
		{"a backing file", backed, croft.Invalid, "backing file"},
	} {
		t.Run(v.name, func(t *testing.T) {
			c := newCache(t)
			_, err := c.Fetch(t.Context(), v.ref, nil)
			refused(t, c, err, v.kind, v.words)
			if images := cacheHas(t, c); len(images) > 0 {
				t.Errorf("in the cache: %v", images)
			}
		})
	}
}

// TestSpecialFilesAreNotOpened watches a FIFO, since opening one may wake a program, and opening a device may
// have any effect.
func TestSpecialFilesAreNotOpened(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("fifo", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	watch, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(watch)
	if _, err := unix.InotifyAddWatch(watch, fifo, unix.IN_OPEN); err != nil {
		t.Fatal(err)
	}
	for _, allow := range [][]string{nil, {dir}} {
		c := newCache(t, func(conf *Config) { conf.AllowFiles = allow })
		for _, name := range []string{"fifo", "link"} {
			_, err := c.Fetch(t.Context(), filepath.Join(dir, name), nil)
			refused(t, c, err, croft.Invalid, "not a regular file")
			_, err = readKeyring(c.copier.allow, filepath.Join(dir, name))
			refused(t, c, err, croft.Invalid, "not a regular file")
		}
	}
	if n, err := unix.Read(watch, make([]byte, 4096)); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("it was opened: %d bytes of events, %v", n, err)
	}
}

func TestALocalFileThatChangesWhileItIsRead(t *testing.T) {
	c, name := newCache(t), filepath.Join(t.TempDir(), "disk.raw")
	writeFile(t, name, rawImage(1, 1<<20))
	src, fi, err := openIn(c.copier.allow, name)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	ref := Reference{Path: name}
	p, err := c.staging.open(ref, false)
	if err != nil {
		t.Fatal(err)
	}
	defer p.discard()
	writeFile(t, name, rawImage(2, 1<<20+512))
	err = c.copier.copyLocal(t.Context(), p, src, stampOf(fi), &transfer{})
	refused(t, nil, err, croft.Unavailable, "changed while it was read")
}

func TestAFullFileSystemIsNamed(t *testing.T) {
	err := noSpace(&os.PathError{Op: "write", Path: "/x", Err: syscall.ENOSPC}, "/images")
	refused(t, nil, err, croft.Unavailable, "/images is full")
	other := errors.New("other")
	if got := noSpace(other, "/images"); got != other {
		t.Errorf("another error became %v", got)
	}
}

func sorted(s ...string) []string { slices.Sort(s); return s }
