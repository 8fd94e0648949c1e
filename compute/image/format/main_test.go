package format

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"croft"
)

func inspectBytes(b []byte) (Info, error) { return Inspect(bytes.NewReader(b), int64(len(b))) }

// refused asserts that the error is Invalid and contains the words.
func refused(t *testing.T, err error, words string) {
	t.Helper()
	if croft.KindOf(err) != croft.Invalid || !strings.Contains(err.Error(), words) {
		t.Errorf("got %v, want one of kind %q with %q", err, croft.Invalid, words)
	}
}

// bootDisk returns a raw disk with a boot record.
func bootDisk(size int) []byte {
	b := bytes.Repeat([]byte{0xeb, 0, 0, 0x63, 0, 0, 0, 7}, size/8)
	copy(b[510:], "\x55\xaa")
	return b
}

func writeFile(t *testing.T, name string, b []byte) string {
	t.Helper()
	if err := os.WriteFile(name, b, 0o644); err != nil {
		t.Fatal(err)
	}
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

// qemu runs a QEMU disk tool, the reference implementation.
func qemu(t *testing.T, tool string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, tool, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s(the tests need Debian's package qemu-utils)", tool, strings.Join(args, " "), err, out)
	}
}

// made creates an image with qemu-img and returns its path.
func made(t *testing.T, format, size string, options ...string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "made."+format)
	qemu(t, "qemu-img", append([]string{"create", "-q", "-f", format}, append(options, name, size)...)...)
	return name
}
