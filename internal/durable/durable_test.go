package durable_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
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
