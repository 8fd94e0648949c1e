package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"croft"
	"croft/compute"
	"croft/compute/image/format"
	"croft/internal/testing/patient"
)

func TestMain(m *testing.M) {
	if arg := os.Getenv(fetchEnv); arg != "" {
		if err := fetchOnly(arg); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// newCache returns a cache in a new directory, with short timeouts, that always revalidates and does not
// protect recently used images from eviction.
func newCache(t *testing.T, change ...func(*Config)) *Cache {
	t.Helper()
	conf := Config{Dir: filepath.Join(t.TempDir(), "images"), Fresh: -1, Log: slog.New(slog.DiscardHandler)}
	for _, f := range change {
		f(&conf)
	}
	c, err := New(conf)
	if err != nil {
		t.Fatal(err)
	}
	c.store.grace, c.download.pause = 0, time.Millisecond
	c.client.zone = func(a netip.Addr) zone { return zoneOf(a, nil) } // regardless of the machine's networks
	return c
}

// again reopens the cache, as after a restart of the process.
func again(t *testing.T, c *Cache) *Cache {
	t.Helper()
	return newCache(t, func(conf *Config) { conf.Dir = c.store.dir })
}

// rawImage returns a disk with a boot record and noise that depends on the seed.
func rawImage(seed uint64, size int) []byte {
	b := make([]byte, size)
	r := rand.New(rand.NewPCG(seed, 1))
	for i := 0; i+8 <= min(size, 4<<20); i += 8 {
		b[i] = byte(r.Uint32())
		b[i+5] = byte(r.Uint32())
	}
	copy(b, []byte{0xeb, 0x63})
	copy(b[510:], []byte{0x55, 0xaa})
	return b
}

func sha(b []byte) string      { s := sha256.Sum256(b); return hex.EncodeToString(s[:]) }
func sha512of(b []byte) string { s := sha512.Sum512(b); return hex.EncodeToString(s[:]) }

func fetch(t *testing.T, c *Cache, ref string) compute.CachedImage {
	t.Helper()
	img, err := c.Fetch(t.Context(), ref, nil)
	if err != nil {
		t.Fatalf("fetch %s: %v", ref, err)
	}
	return img
}

// refused asserts the kind and words of an error, and that nothing of the image remains in the cache.
func refused(t *testing.T, c *Cache, err error, kind croft.Kind, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one of kind %q", kind)
	}
	if got := croft.KindOf(err); got != kind {
		t.Errorf("kind %q, want %q: %v", got, kind, err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q: %v", w, err)
		}
	}
	if c != nil {
		if left := listDir(t, c.staging.dir); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
}

func listDir(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func cacheHas(t *testing.T, c *Cache) []string {
	t.Helper()
	var images []string
	for _, name := range listDir(t, c.store.dir) {
		if isImageName(name) {
			images = append(images, name)
		}
	}
	return images
}

func writeFile(t *testing.T, name string, b []byte) string {
	t.Helper()
	if err := os.WriteFile(name, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func contentIs(t *testing.T, name string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s has other content (%d bytes) than was served (%d bytes)", name, len(got), len(want))
	}
}

// qemu runs a QEMU disk tool, the reference implementation.
func qemu(t *testing.T, tool string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patient.Longest)
	defer cancel()
	out, err := exec.CommandContext(ctx, tool, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s(the tests need Debian's package qemu-utils)", tool, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// made creates an image with qemu-img and returns its path.
func made(t *testing.T, format, size string, options ...string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "made."+format)
	qemu(t, "qemu-img", append([]string{"create", "-q", "-f", format}, append(options, name, size)...)...)
	return name
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func inspectBytes(b []byte) (format.Info, error) {
	return format.Inspect(bytes.NewReader(b), int64(len(b)))
}
