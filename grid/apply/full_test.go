package apply_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// fillUp mounts a full file system over a directory, with a copy of its files. restore unmounts it.
func fillUp(t *testing.T, dir string) (restore func(), err error) {
	t.Helper()
	kept := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", dir+"/.", kept).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v: %s", err, out)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		return nil, err
	}
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", kept+"/.", dir).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v: %s", err, out)
	}
	_ = os.WriteFile(filepath.Join(dir, "filler"), bytes.Repeat([]byte("x"), 1<<16), 0o600) // no byte is left
	unmount := func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) }
	t.Cleanup(unmount)
	return unmount, nil
}
