// Package pty provides a pseudo-terminal for tests, which read its screen.
package pty

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"croft/internal/testing/patient"
)

// Terminal is a pseudo-terminal whose screen the test reads.
type Terminal struct {
	*os.File // for the program's output
	Master   *os.File
	mu       sync.Mutex
	cond     *sync.Cond
	screen   bytes.Buffer
	read     sync.WaitGroup
	ended    bool
	late     bool // the time limit for the awaited text has passed
}

// New opens a terminal that ends with the test.
func New(t *testing.T) *Terminal {
	t.Helper()
	t.Setenv("TERM", "xterm")
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 160}); err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	term := &Terminal{File: slave, Master: master}
	term.cond = sync.NewCond(&term.mu)
	term.read.Go(term.copy)
	t.Cleanup(func() { term.End() })
	return term
}

// copy reads the output until the terminal is closed.
func (term *Terminal) copy() {
	b := make([]byte, 4096)
	for {
		n, err := term.Master.Read(b)
		term.mu.Lock()
		term.screen.Write(b[:n])
		term.ended = err != nil
		term.cond.Broadcast()
		term.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// End closes the terminal and returns all output.
func (term *Terminal) End() string {
	_ = term.File.Close() // the reader then sees that the last writer has closed
	term.read.Wait()
	_ = term.Master.Close()
	return term.screen.String()
}

// Await returns once the text has been written; it fails the test if the text does not appear.
func (term *Terminal) Await(t *testing.T, text string) {
	t.Helper()
	late := time.AfterFunc(time.Until(patient.Deadline(t)), func() {
		term.mu.Lock()
		defer term.mu.Unlock()
		term.late = true
		term.cond.Broadcast()
	})
	defer late.Stop()
	term.mu.Lock()
	defer term.mu.Unlock()
	for !strings.Contains(term.screen.String(), text) {
		if term.ended || term.late {
			t.Fatalf("the terminal is without %q, ended: %v:\n%s", text, term.ended, term.screen.String())
		}
		term.cond.Wait()
	}
}

// Resize changes the terminal's size and signals the program in it.
func (term *Terminal) Resize(t *testing.T, rows, cols uint16) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(term.Master.Fd()), unix.TIOCSWINSZ,
		&unix.Winsize{Row: rows, Col: cols}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(unix.Getpid(), unix.SIGWINCH); err != nil {
		t.Fatal(err)
	}
}

func (term *Terminal) Type(t *testing.T, keys string) {
	t.Helper()
	if _, err := term.Master.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}
