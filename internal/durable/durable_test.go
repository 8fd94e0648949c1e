package durable_test

import (
	"os"
	"path/filepath"
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
	// A directory in its place is not replaced, and nothing is left behind.
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
