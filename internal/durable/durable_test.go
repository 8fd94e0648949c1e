package durable_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"croft/internal/durable"
)

func TestAFileIsReplacedOrStaysAsItWas(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "secret")
	for _, text := range []string{"first", "second"} {
		if err := durable.Write(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != text {
			t.Errorf("got %q, %v, want %q", got, err, text)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	// The mode is the requested one, whatever mode the old file had.
	if err := durable.Write(file, nil, 0o640); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	// A directory is not replaced, and no temporary file is left.
	if err := os.Mkdir(filepath.Join(dir, "taken"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := durable.Write(filepath.Join(dir, "taken"), nil, 0o600); err == nil {
		t.Error("a directory was replaced")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	if err := durable.Write(filepath.Join(dir, "none", "file"), nil, 0o600); err == nil {
		t.Error("a file was written where there is no directory")
	}
}

// A crash preserves flushed data: the new file is flushed before it replaces the old one, the directory after that.
func TestAnErrorOfTheDiskNamesTheFileAndWhatToDo(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "export")
	for cause, want := range map[error]string{
		syscall.ENOSPC: "no space left on device; free space there, or name a file on another disk",
		syscall.EROFS:  "read-only file system; name a file on a disk that can be written",
		syscall.EACCES: "permission denied; name a file in a directory that you may write to",
	} {
		err := durable.WriteFrom(file, 0o600, func(w io.Writer) error {
			return fmt.Errorf("copy: %w", &fs.PathError{Op: "write", Path: w.(*os.File).Name(), Err: cause})
		})
		if want := "write " + file + ": " + want; err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	err := durable.Write(filepath.Join(dir, "none", "file"), nil, 0o600)
	if want := "; create the directory " + filepath.Join(dir, "none") + " first"; err == nil ||
		!strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	// An error that is not about the file stays as it is.
	other := errors.New("the cloud does not answer")
	if err := durable.WriteFrom(file, 0o600, func(io.Writer) error { return other }); err.Error() != other.Error() {
		t.Errorf("got %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestAFileIsFlushedBeforeItTakesThePlaceOfTheOther(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "secret")
	if err := durable.Write(file, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		return string(text)
	}
	var flushed []string
	durable.WatchFlush(t, func(f *os.File) error {
		if f.Name() == dir {
			flushed = append(flushed, "the directory, in which there is "+read(file))
		} else {
			flushed = append(flushed, "a file with "+read(f.Name())+", beside "+read(file))
		}
		return nil
	})
	if err := durable.Write(file, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	if want := []string{"a file with new, beside old", "the directory, in which there is new"}; !slices.Equal(flushed,
		want) {
		t.Errorf("flushed: %q, want %q", flushed, want)
	}
}

// If a disk cannot be flushed, the old file stays and the writer gets an error.
func TestWhatCannotBeFlushedIsAnError(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "secret")
	if err := durable.Write(file, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("the disk is broken")
	for _, which := range []string{"file", "directory"} {
		durable.WatchFlush(t, func(f *os.File) error {
			if (f.Name() == dir) == (which == "directory") {
				return broken
			}
			return nil
		})
		if err := durable.Write(file, []byte("new"), 0o600); !errors.Is(err, broken) {
			t.Errorf("the %s cannot be flushed: %v", which, err)
		}
		if text, err := os.ReadFile(file); which == "file" && (err != nil || string(text) != "old") {
			t.Errorf("there is %q, %v", text, err)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Errorf("left behind: %v, %v", entries, err)
		}
	}
}
