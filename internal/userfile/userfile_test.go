package userfile_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"croft"
	"croft/internal/userfile"
)

func TestOnlyBoundedFilesAreRead(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(path("short"), []byte("text"), 0o600))
	must(os.WriteFile(path("most"), make([]byte, userfile.Most), 0o600))
	must(os.WriteFile(path("huge"), nil, 0o600))
	must(os.Truncate(path("huge"), 10<<30)) // sparse
	must(syscall.Mkfifo(path("fifo"), 0o600))
	if text, err := userfile.Read(path("short")); err != nil || string(text) != "text" {
		t.Errorf("a short file: %q, %v", text, err)
	}
	if text, err := userfile.Read(path("most")); err != nil || len(text) != userfile.Most {
		t.Errorf("a file of 4 MiB: %d bytes, %v", len(text), err)
	}
	if text, err := userfile.Read(path("fifo")); len(text) != 0 || err != nil {
		t.Errorf("a FIFO that has no writer: %q, %v", text, err)
	}
	for name, reason := range map[string]string{path("huge"): "more than 4 MiB", "/dev/zero": "is not a file",
		dir: "is not a file", path("none"): "no such file"} {
		_, err := userfile.Read(name)
		if croft.KindOf(err) != croft.Invalid || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := userfile.Read(path("none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the cause is lost: %v", err)
	}
}

// TestAPipeIsRead, such as the shell makes for <(command).
func TestAPipeIsRead(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	go func() {
		_, _ = w.WriteString("from a pipe")
		w.Close()
	}()
	name := filepath.Join("/dev/fd", strconv.Itoa(int(r.Fd())))
	if text, err := userfile.Read(name); err != nil || string(text) != "from a pipe" {
		t.Errorf("%q, %v", text, err)
	}
}

// TestASignalEndsARead of a pipe whose writer is silent, and of such a stdin.
func TestASignalEndsARead(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	// Signals before the read starts, and those that arrive after the test, do not end the process.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM)
	for name, read := range map[string]func() error{
		"a pipe": func() error {
			_, err := userfile.Read(filepath.Join("/dev/fd", strconv.Itoa(int(r.Fd()))))
			return err
		},
		"stdin": func() error {
			_, err := userfile.ReadFrom(r, 10)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			done := make(chan error)
			go func() { done <- read() }()
			for {
				select {
				case err := <-done:
					if !errors.Is(err, context.Canceled) {
						t.Errorf("it ended with %v", err)
					}
					return
				default:
					if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
						t.Fatal(err)
					}
					runtime.Gosched()
				}
			}
		})
	}
}
