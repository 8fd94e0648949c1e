package image_test

import (
	"bytes"
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"croft"
	"croft/compute"
	"croft/compute/image"
	"croft/compute/restic"
)

// TestADiskIsReadWithAllItsLayersAndWrittenAgain reads a disk of two layers with real qemu-nbd, and writes it again.
func TestADiskIsReadWithAllItsLayersAndWrittenAgain(t *testing.T) {
	t.Parallel()
	if missing := restic.Missing(); len(missing) > 0 {
		t.Skipf("%v are missing", missing)
	}
	dir := t.TempDir()
	cache, err := image.New(image.Config{Dir: filepath.Join(dir, "cache")})
	if err != nil {
		t.Fatal(err)
	}
	const gib = 1 << 30
	want := make([]byte, 3<<20)
	chaos := rand.NewChaCha8([32]byte{1})
	_, _ = chaos.Read(want[:1<<20])
	_, _ = chaos.Read(want[2<<20:])
	first, again := filepath.Join(dir, "disk.qcow2"), filepath.Join(dir, "again.qcow2")
	if err := cache.WriteDisk(t.Context(), first, 1, bytes.NewReader(want)); err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "over.qcow2")
	if err := cache.Overlay(t.Context(), overlay, compute.Layer{Path: first, Format: "qcow2"}); err != nil {
		t.Fatal(err)
	}
	layers := []compute.Layer{{Path: overlay, Format: "qcow2"}, {Path: first, Format: "qcow2"}}
	r, w := io.Pipe()
	go func() { _ = w.CloseWithError(cache.ReadDisk(t.Context(), layers, w)) }()
	if err := cache.WriteDisk(t.Context(), again, 1, r); err != nil {
		t.Fatal(err)
	}
	sum := sha256.New()
	var begin head
	if err := cache.ReadDisk(t.Context(), []compute.Layer{{Path: again, Format: "qcow2"}},
		io.MultiWriter(sum, &begin)); err != nil {
		t.Fatal(err)
	}
	if begin.n != gib || !bytes.Equal(begin.kept, want) {
		t.Errorf("it reads %d bytes, with other data: %v", begin.n, !bytes.Equal(begin.kept, want))
	}
	info, err := os.Stat(again)
	if err != nil {
		t.Fatal(err)
	}
	if used := info.Sys().(*syscall.Stat_t).Blocks * 512; used > 8<<20 {
		t.Errorf("a disk with 2 MiB of data uses %d bytes", used)
	}
	err = cache.ReadDisk(t.Context(), []compute.Layer{{Path: again + "x", Format: "qcow2"}}, io.Discard)
	if croft.KindOf(err) != croft.Unavailable || strings.Contains(err.Error(), "\n") {
		t.Errorf("of a missing file: %v", err)
	}
	err = cache.WriteDisk(t.Context(), again, 1, io.MultiReader(bytes.NewReader(want), failing{}))
	if _, there := os.Stat(again); err == nil || there == nil {
		t.Errorf("of a source that fails: %v, the file is there: %v", err, there == nil)
	}
}

// head keeps the first bytes that are written, and counts all.
type head struct {
	kept []byte
	n    int64
}

func (h *head) Write(p []byte) (int, error) {
	h.kept = append(h.kept, p[:min(len(p), 3<<20-len(h.kept))]...)
	h.n += int64(len(p))
	return len(p), nil
}

// failing is a source whose data turns out to be damaged at its end.
type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
