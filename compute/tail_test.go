package compute

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// follow tails a log that starts with "one " in its own directory. ended gets the error with which tail ends.
func follow(t *testing.T) (path string, r io.Reader, ended <-chan error) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "i")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "console.log")
	write(t, path, "one ")
	from, w := io.Pipe()
	end := make(chan error, 1)
	go func() {
		end <- tail(t.Context(), path, w, true)
		w.Close()
	}()
	return path, from, end
}

func TestTailFollowsAcrossARotationToTheEnd(t *testing.T) {
	t.Parallel()
	path, r, ended := follow(t)
	dir := filepath.Dir(path)
	expect := func(want string) {
		t.Helper()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(r, got); err != nil || string(got) != want {
			t.Fatalf("got %q, %v, want %q", got, err, want)
		}
	}
	expect("one ")
	write(t, path, "two ")
	expect("two ")
	if err := os.Rename(path, path+".0"); err != nil {
		t.Fatal(err)
	}
	write(t, path, "three")
	expect("three")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("tail ended with %v, want nil: its directory is gone", err)
	}
}

func TestTailEndsWithItsContextAndWithoutFollowing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "console.log")
	write(t, path, "text")
	if err := tail(t.Context(), path, io.Discard, false); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tail(ctx, path, io.Discard, true); err != nil {
		t.Error(err)
	}
	if err := tail(t.Context(), path+"x", io.Discard, false); err == nil {
		t.Error("a file that is not there was sent")
	}
}

// TestTailNeverReadsTheLogOfALaterInstance replaces the directory while the client does not read: instances that have
// the same UUID, one after the other, have the same directory.
func TestTailNeverReadsTheLogOfALaterInstance(t *testing.T) {
	t.Parallel()
	path, r, ended := follow(t)
	dir := filepath.Dir(path)
	if _, err := io.ReadFull(r, make([]byte, len("one "))); err != nil {
		t.Fatal(err)
	}
	write(t, path, "two ")
	if _, err := io.ReadFull(r, make([]byte, 1)); err != nil { // the rest is not read yet
		t.Fatal(err)
	}
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	write(t, path, "the log of the later instance")
	rest, err := io.ReadAll(r)
	if err != nil || string(rest) != "wo " {
		t.Errorf("the client reads %q, %v", rest, err)
	}
	if err := <-ended; err != nil {
		t.Errorf("tail ended with %v", err)
	}
}
