package image

import (
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

func benchCache(b *testing.B) (*Cache, string) {
	b.Helper()
	c, err := New(Config{Dir: filepath.Join(b.TempDir(), "images"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	name := filepath.Join(b.TempDir(), "disk.raw")
	if err := os.WriteFile(name, rawImage(1, 64<<20), 0o644); err != nil {
		b.Fatal(err)
	}
	return c, name
}

// BenchmarkFetchCached measures the image fetch of every instance but the first.
func BenchmarkFetchCached(b *testing.B) {
	c, name := benchCache(b)
	for b.Loop() {
		if _, err := c.Fetch(b.Context(), name, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDisk measures the creation of an instance's disk: a link, an overlay, and the syncs of both.
func BenchmarkDisk(b *testing.B) {
	c, name := benchCache(b)
	img, err := c.Fetch(b.Context(), name, nil)
	if err != nil {
		b.Fatal(err)
	}
	dir, n := b.TempDir(), 0
	for b.Loop() {
		n++
		if _, err := c.Disk(b.Context(), img, filepath.Join(dir, strconv.Itoa(n)), 10); err != nil {
			b.Fatal(err)
		}
	}
}
