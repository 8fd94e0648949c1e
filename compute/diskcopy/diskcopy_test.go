package diskcopy_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"croft"
	"croft/compute/diskcopy"
)

// source is a file with holes, and counts the bytes that are sent of it.
type source struct {
	t    *testing.T
	file *os.File
	size int64
	sent int64
	// known: the receiver knows the SHA-256
	known bool
	// changes what is sent; nil: nothing
	wire func(io.Reader) io.Reader
}

const chunks = 20

// newSource makes a file of 20 chunks and a bit, of which every third is a hole and one only zeros.
func newSource(t *testing.T) *source {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	random := rand.NewChaCha8([32]byte{1})
	s := &source{t: t, file: f, size: chunks*diskcopy.Chunk + 123}
	for i := range int64(chunks + 1) {
		chunk := make([]byte, min(diskcopy.Chunk, s.size-i*diskcopy.Chunk))
		if i%3 == 1 {
			continue
		}
		if i != 6 {
			_, _ = random.Read(chunk)
		}
		if _, err := f.WriteAt(chunk, i*diskcopy.Chunk); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// sum returns the SHA-256 of the file.
func (s *source) sum() string {
	content, err := os.ReadFile(s.file.Name())
	if err != nil {
		s.t.Fatal(err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(content))
}

// bothWays runs a test with a file of which the receiver knows only what the sender says, and with one whose SHA-256 it
// knows.
func bothWays(t *testing.T, test func(t *testing.T, s *source)) {
	for name, known := range map[string]bool{"digests of the sender": false, "a known SHA-256": true} {
		t.Run(name, func(t *testing.T) {
			s := newSource(t)
			s.known = known
			test(t, s)
		})
	}
}

func (s *source) open(ctx context.Context, identity string, from int64) (diskcopy.Head, io.ReadCloser, error) {
	info, err := s.file.Stat()
	if err != nil {
		return diskcopy.Head{}, nil, err
	}
	head := diskcopy.HeadOf(info)
	if s.known {
		head.SHA256 = s.sum()
	}
	if identity == head.Identity {
		head.From = from
	}
	return s.stream(ctx, head)
}

// stream sends what a head describes.
func (s *source) stream(ctx context.Context, head diskcopy.Head) (diskcopy.Head, io.ReadCloser, error) {
	r, w := io.Pipe()
	var sending sync.WaitGroup
	sending.Go(func() {
		_ = w.CloseWithError(diskcopy.Send(ctx, counting{w, &s.sent}, s.file, head, func(int64) {}))
	})
	received := stream{r, func() error {
		defer sending.Wait()
		return r.Close()
	}}
	if s.wire != nil {
		received.Reader = s.wire(r)
	}
	return head, received, nil
}

type stream struct {
	io.Reader
	close func() error
}

func (s stream) Close() error { return s.close() }

type counting struct {
	io.Writer
	n *int64
}

func (c counting) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	*c.n += int64(n)
	return n, err
}

// receive copies the file; after is called with each offset that arrived.
func (s *source) receive(path string, after func(int64)) error {
	s.t.Helper()
	return diskcopy.Receive(s.t.Context(), path, s.size, s.open, func(p croft.Progress) {
		if after != nil {
			after(p.Done)
		}
	})
}

// complete compares a copy with the source, and the space that it takes.
func (s *source) complete(path string) {
	s.t.Helper()
	want, err := os.ReadFile(s.file.Name())
	if err != nil {
		s.t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		s.t.Fatalf("the copy differs: %d bytes of %d, %v", len(got), len(want), err)
	}
	blocks, err := exec.Command("stat", "-c", "%b", path).Output()
	if err != nil || len(blocks) == 0 {
		s.t.Fatal(err)
	}
	if err := diskcopy.Forget(path); err != nil {
		s.t.Error(err)
	}
	if left, err := filepath.Glob(path + "*"); err != nil || len(left) != 1 {
		s.t.Errorf("left: %q, %v", left, err)
	}
}

func TestAFileWithHolesIsCopied(t *testing.T) { bothWays(t, aFileWithHolesIsCopied) }

func aFileWithHolesIsCopied(t *testing.T, s *source) {
	path := filepath.Join(t.TempDir(), "copy")
	if err := s.receive(path, nil); err != nil {
		t.Fatal(err)
	}
	s.complete(path)
	if s.sent > 14*(diskcopy.Chunk+100) {
		t.Errorf("%d bytes are sent of 13 chunks with data", s.sent)
	}
}

// errCut is the end of a connection.
var errCut = errors.New("cut")

// cutAfter ends a stream after a number of bytes.
func cutAfter(n int64) func(io.Reader) io.Reader {
	return func(r io.Reader) io.Reader { return io.MultiReader(io.LimitReader(r, n), failing{}) }
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errCut }

// A connection that breaks in the middle of a chunk costs at most that chunk.
func TestABrokenCopyContinuesWhereItStopped(t *testing.T) {
	bothWays(t, aBrokenCopyContinuesWhereItStopped)
}

func aBrokenCopyContinuesWhereItStopped(t *testing.T, s *source) {
	path := filepath.Join(t.TempDir(), "copy")
	whole := newSource(t)
	if err := whole.receive(filepath.Join(t.TempDir(), "copy"), nil); err != nil {
		t.Fatal(err)
	}
	tries := 0
	for s.wire = cutAfter(3*diskcopy.Chunk + 77); ; tries++ {
		err := s.receive(path, nil)
		if err == nil {
			break
		}
		if !errors.Is(err, croft.Unavailable) || tries > chunks {
			t.Fatalf("try %d: %v", tries, err)
		}
	}
	s.complete(path)
	twice := s.sent - whole.sent
	t.Logf("%d connections were cut; %d bytes were sent twice of %d", tries, twice, whole.sent)
	if tries < 3 || twice > int64(tries)*(2*diskcopy.Chunk+64<<10) {
		t.Errorf("%d connections were cut, and %d bytes were sent twice", tries, twice)
	}
}

// What was not synced when a process is killed is copied again, and what is torn in the log counts as not copied.
func TestATornLogIsCutOff(t *testing.T) { bothWays(t, aTornLogIsCutOff) }

func aTornLogIsCutOff(t *testing.T, s *source) {
	path := filepath.Join(t.TempDir(), "copy")
	s.wire = cutAfter(5*diskcopy.Chunk + 1000)
	if err := s.receive(path, nil); !errors.Is(err, croft.Unavailable) {
		t.Fatal(err)
	}
	info, err := os.Stat(path + ".log")
	if err != nil {
		t.Fatal(err)
	}
	for cut := info.Size() - 1; cut > info.Size()-90; cut -= 13 {
		if err := os.Truncate(path+".log", cut); err != nil {
			t.Fatal(err)
		}
		if err := s.receive(path, nil); !errors.Is(err, croft.Unavailable) {
			t.Fatal(err)
		}
	}
	s.wire = nil
	if err := s.receive(path, nil); err != nil {
		t.Fatal(err)
	}
	s.complete(path)
}

// A file that has changed since is copied from its beginning.
func TestAChangedFileIsCopiedAnew(t *testing.T) { bothWays(t, aChangedFileIsCopiedAnew) }

func aChangedFileIsCopiedAnew(t *testing.T, s *source) {
	path := filepath.Join(t.TempDir(), "copy")
	s.wire = cutAfter(5 * diskcopy.Chunk)
	if err := s.receive(path, nil); !errors.Is(err, croft.Unavailable) {
		t.Fatal(err)
	}
	if _, err := s.file.WriteAt([]byte("changed"), 10); err != nil {
		t.Fatal(err)
	}
	s.wire = nil
	if err := s.receive(path, nil); err != nil {
		t.Fatal(err)
	}
	s.complete(path)
}

// A sender that sends other bytes than it read, leaves chunks out, or names other places is refused.
func TestWhatDiffersFromItsDigestIsRefused(t *testing.T) {
	flip := func(at int64) func(io.Reader) io.Reader {
		return func(r io.Reader) io.Reader {
			stream, err := io.ReadAll(r)
			if err != nil {
				return bytes.NewReader(nil)
			}
			stream[at] ^= 1
			return bytes.NewReader(stream)
		}
	}
	const frame = 8 + 4 + 32
	for name, wire := range map[string]func(io.Reader) io.Reader{
		"a byte of a chunk":     flip(frame + 500),
		"a byte of a digest":    flip(20),
		"the place of a chunk":  flip(7),
		"a place far outside":   flip(0),
		"the length of a chunk": flip(9),
		"a chunk is left out": func(r io.Reader) io.Reader {
			if _, err := io.CopyN(io.Discard, r, frame+diskcopy.Chunk); err != nil {
				return bytes.NewReader(nil)
			}
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, s *source) {
				path := filepath.Join(t.TempDir(), "copy")
				s.wire = wire
				if err := s.receive(path, nil); !errors.Is(err, croft.Invalid) {
					t.Fatalf("got %v", err)
				}
				s.wire = nil
				if err := s.receive(path, nil); err != nil {
					t.Fatal(err)
				}
				s.complete(path)
			})
		})
	}
}

// A sender that says the right SHA-256 and sends another file is refused when the file is complete. What it sent before
// it broke off does not remain once the rest has come from an honest one.
func TestAnotherFileThanTheKnownOneIsRefused(t *testing.T) {
	honest, path := newSource(t), filepath.Join(t.TempDir(), "copy")
	honest.known = true
	open := func(s *source) diskcopy.Open {
		return func(ctx context.Context, identity string, from int64) (diskcopy.Head, io.ReadCloser, error) {
			next := int64(0)
			if identity == honest.sum() {
				next = from
			}
			return s.stream(ctx, diskcopy.Head{Identity: honest.sum(), Size: s.size, SHA256: honest.sum(), From: next})
		}
	}
	receive := func(s *source) error {
		return diskcopy.Receive(t.Context(), path, s.size, open(s), func(croft.Progress) {})
	}
	liar := newSource(t)
	if _, err := liar.file.WriteAt([]byte("lie"), 5); err != nil {
		t.Fatal(err)
	}
	if err := receive(liar); !errors.Is(err, croft.Invalid) || !strings.Contains(err.Error(), "SHA-256") {
		t.Fatalf("got %v", err)
	}
	if left, err := filepath.Glob(path + "*"); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
	liar.wire = cutAfter(5 * diskcopy.Chunk)
	if err := receive(liar); !errors.Is(err, croft.Unavailable) {
		t.Fatalf("got %v", err)
	}
	if err := receive(honest); !errors.Is(err, croft.Invalid) {
		t.Fatalf("got %v", err)
	}
	if err := receive(honest); err != nil {
		t.Fatal(err)
	}
	honest.complete(path)
}

func TestAFileThatIsTooLargeIsRefused(t *testing.T) {
	s, path := newSource(t), filepath.Join(t.TempDir(), "copy")
	err := diskcopy.Receive(t.Context(), path, s.size-1, s.open, func(croft.Progress) {})
	if !errors.Is(err, croft.Invalid) {
		t.Fatal(err)
	}
}

// A full file system is an error of its own kind, and the copy continues once there is room.
func TestAFullFileSystem(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=6m", "none", dir).CombinedOutput(); err != nil {
		t.Skipf("this needs root to mount a file system: %s", out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %s", out)
		}
	})
	s, path := newSource(t), filepath.Join(dir, "copy")
	if err := s.receive(path, nil); !errors.Is(err, croft.NoCapacity) {
		t.Fatal(err)
	}
	if out, err := exec.Command("mount", "-o", "remount,size=40m", dir).CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	before := s.sent
	if err := s.receive(path, nil); err != nil {
		t.Fatal(err)
	}
	if again := s.sent - before; again > 12*diskcopy.Chunk {
		t.Errorf("%d bytes were sent after the file system got room", again)
	}
	s.complete(path)
}
