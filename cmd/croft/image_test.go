package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"croft"
	"croft/compute/image"
)

// run runs a command and returns its output.
func run(t *testing.T, want int, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, words bytes.Buffer
	if code := Run(t.Context(), args, strings.NewReader(""), &out, &words); code != want {
		t.Fatalf("%q ended with %d, want %d: %s", args, code, want, words.String())
	}
	return out.String(), words.String()
}

// cachedDisk downloads a small raw disk into the cache of a state directory, with an old time of use, and returns its
// path and its source.
func cachedDisk(t *testing.T, state string, seed byte) (path, source string) {
	t.Helper()
	c, err := image.New(image.Config{Dir: image.CacheDir(state), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	disk := bytes.Repeat([]byte{seed}, 1<<20)
	copy(disk[510:], "\x55\xaa")
	source = filepath.Join(t.TempDir(), "disk.raw")
	if err := os.WriteFile(source, disk, 0o600); err != nil {
		t.Fatal(err)
	}
	img, err := c.Fetch(t.Context(), source, nil)
	if err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(img.Path, old, old); err != nil {
		t.Fatal(err)
	}
	return img.Path, source
}

func TestImagesOfTheCacheAreShownAndPruned(t *testing.T) {
	state := t.TempDir()
	used, source := cachedDisk(t, state, 1)
	unused, _ := cachedDisk(t, state, 2)
	if err := os.Link(used, filepath.Join(state, "base.raw")); err != nil { // a disk uses it
		t.Fatal(err)
	}
	list, _ := run(t, croft.ExitOK, "croft", "image", "list", "--state-dir", state)
	for _, want := range []string{`(?m)^- +1\.0 MiB +1 +nothing +file://` + source + "$",
		`(?m)^- +1\.0 MiB +0 +nothing +file://`} {
		if !regexp.MustCompile(want).MatchString(list) {
			t.Errorf("the list has no line %s:\n%s", want, list)
		}
	}
	show, _ := run(t, croft.ExitOK, "croft", "image", "show", source, "--state-dir", state)
	for _, want := range []string{"cached       1.0 MiB\n", "disks on it  1\n", "format       raw",
		"disk         1.0 MiB", "file         " + used} {
		if !strings.Contains(show, want) {
			t.Errorf("show says no %q:\n%s", want, show)
		}
	}
	out, words := run(t, croft.ExitOK, "croft", "image", "prune", "--dry-run", "--state-dir", state)
	if !strings.Contains(words, "would be removed: 1, of 1.0 MiB") ||
		!strings.Contains(out, filepath.Base(unused)[:64]) {
		t.Errorf("a dry run says %s%s", out, words)
	}
	if _, err := os.Stat(unused); err != nil {
		t.Errorf("a dry run removed it: %v", err)
	}
	run(t, croft.ExitOK, "croft", "image", "prune", "--state-dir", state)
	if _, err := os.Stat(unused); err == nil {
		t.Error("what no disk stands on is still there")
	}
	if _, err := os.Stat(used); err != nil {
		t.Errorf("what a disk stands on is gone: %v", err)
	}
}

func TestAnImageIsRemovedFromTheCache(t *testing.T) {
	state := t.TempDir()
	used, source := cachedDisk(t, state, 1)
	other, _ := cachedDisk(t, state, 2)
	if err := os.Link(used, filepath.Join(state, "base.raw")); err != nil { // a disk uses it
		t.Fatal(err)
	}
	_, words := run(t, croft.ExitOK, "croft", "image", "remove", "--cached", source, "--state-dir", state)
	if !strings.Contains(words, "its space stays in use by 1 disk that the host made of it") {
		t.Errorf("it says %q", words)
	}
	sha, _, _ := strings.Cut(filepath.Base(other), ".")
	run(t, croft.ExitOK, "croft", "image", "remove", "--cached", sha, "--state-dir", state)
	for _, name := range []string{used, other} {
		if _, err := os.Stat(name); err == nil {
			t.Errorf("%s is still there", name)
		}
	}
	run(t, 3, "croft", "image", "remove", "--cached", sha, "--state-dir", state)
}
