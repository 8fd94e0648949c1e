package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"croft"
)

// terminal is a pseudo-terminal whose screen the test reads.
type terminal struct {
	*os.File // what the program writes to
	master   *os.File
	mu       sync.Mutex
	cond     *sync.Cond
	screen   bytes.Buffer
	read     sync.WaitGroup
	ended    bool
}

// newTerminal opens a terminal that ends with the test.
func newTerminal(t *testing.T) *terminal {
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
	term := &terminal{File: slave, master: master}
	term.cond = sync.NewCond(&term.mu)
	term.read.Go(term.copy)
	t.Cleanup(func() { term.close() })
	return term
}

// copy reads what is written until the terminal is closed.
func (term *terminal) copy() {
	b := make([]byte, 4096)
	for {
		n, err := term.master.Read(b)
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

// close ends the terminal and returns all that was written to it.
func (term *terminal) close() string {
	_ = term.File.Close() // the reader sees the end of the last writer
	term.read.Wait()
	_ = term.master.Close()
	return term.screen.String()
}

// await returns once the text has been written.
func (term *terminal) await(t *testing.T, text string) {
	t.Helper()
	term.mu.Lock()
	defer term.mu.Unlock()
	for !strings.Contains(term.screen.String(), text) {
		if term.ended {
			t.Fatalf("the terminal ended without %q:\n%s", text, term.screen.String())
		}
		term.cond.Wait()
	}
}

// run runs a command of schedule with the cloud's addresses.
func (c *testCloud) schedule(ctx context.Context, stdout, stderr any, args ...string) int {
	asWriter := func(w any) interface{ Write([]byte) (int, error) } {
		if term, ok := w.(*terminal); ok {
			return term.File
		}
		return w.(*bytes.Buffer)
	}
	return Run(ctx, c.args(append([]string{"schedule"}, args...)...), strings.NewReader(""), asWriter(stdout), asWriter(stderr))
}

const small = "VCPU:1,MEMORY_MB:256,DISK_GB:1"

func TestProgressIsDrawnOnATerminal(t *testing.T) {
	c, term, out := cloudFor(t, 2), newTerminal(t), new(bytes.Buffer)
	if code := c.schedule(t.Context(), out, term, small, "--wait", "--count", "2", "--name", "web"); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, term.close())
	}
	if strings.Count(out.String(), "NOTIFIED TARGET, ") != 2 {
		t.Errorf("stdout is %q", out)
	}
	screen := term.close()
	for _, want := range []string{"web-1", "web-2", "running at 10."} {
		if !strings.Contains(screen, want) {
			t.Errorf("no %q on the screen:\n%q", want, screen)
		}
	}
}

func TestProgressOfAFailure(t *testing.T) {
	c, term, out := cloudFor(t, 1), newTerminal(t), new(bytes.Buffer)
	if code := c.schedule(t.Context(), out, term, small, "/broken.qcow2", "--wait", "--name", "bad"); code != croft.ExitUsage {
		t.Errorf("exit code %d", code)
	}
	screen := term.close()
	if !strings.Contains(screen, "failed") || !strings.Contains(screen, "croft: instance bad: image file:///broken.qcow2: the checksum is wrong") {
		t.Errorf("the screen is:\n%q", screen)
	}
}

func TestColorsAreForTerminalsAlone(t *testing.T) {
	c := cloudFor(t, 1)
	var plain, errs bytes.Buffer
	if code := c.schedule(t.Context(), &plain, &errs, small, "--wait", "--name", "web"); code != 0 {
		t.Fatalf("exit code %d: %s", code, &errs)
	}
	list := func(term *terminal) string {
		if code := c.schedule(t.Context(), term, &errs, "list"); code != 0 {
			t.Fatalf("exit code %d: %s", code, &errs)
		}
		return term.close()
	}
	if screen := list(newTerminal(t)); !strings.Contains(screen, "\x1b[32mrunning\x1b[0m") {
		t.Errorf("running is not green:\n%q", screen)
	}
	t.Setenv("NO_COLOR", "1")
	if screen := list(newTerminal(t)); strings.Contains(screen, "\x1b[") || !strings.Contains(screen, "running") {
		t.Errorf("colors in spite of NO_COLOR:\n%q", screen)
	}
	if plain.Reset(); c.schedule(t.Context(), &plain, &errs, "list") != 0 || strings.Contains(plain.String(), "\x1b") {
		t.Errorf("colors in a file:\n%q", &plain)
	}
}

func TestListIsWatched(t *testing.T) {
	c, term := cloudFor(t, 1), newTerminal(t)
	ctx, interrupt := context.WithCancel(t.Context())
	code := make(chan int, 1)
	var errs, more bytes.Buffer
	go func() { code <- c.schedule(ctx, term, &errs, "list", "-w") }()
	term.await(t, "NAME")
	if c.schedule(t.Context(), &more, &more, small, "--name", "web", "--wait") != 0 || c.schedule(t.Context(), &more, &more, "stop", "web") != 0 {
		t.Fatal(more.String())
	}
	term.await(t, "stopped")
	interrupt()
	if got := <-code; got != 0 {
		t.Errorf("exit code %d after an interrupt: %s", got, &errs)
	}
}

func TestWatchedListAsLines(t *testing.T) {
	c, term := cloudFor(t, 1), newTerminal(t)
	t.Setenv("TERM", "dumb") // not a terminal that can be drawn on
	ctx, interrupt := context.WithCancel(t.Context())
	code := make(chan int, 1)
	var errs, more bytes.Buffer
	go func() { code <- c.schedule(ctx, term, &errs, "list", "-w", "-o", "json") }()
	term.await(t, "[]")
	if c.schedule(t.Context(), &more, &more, small, "--name", "web", "--wait") != 0 {
		t.Fatal(more.String())
	}
	term.await(t, `"state":"running"`)
	interrupt()
	if got := <-code; got != 0 {
		t.Errorf("exit code %d after an interrupt: %s", got, &errs)
	}
	for line := range strings.Lines(term.close()) {
		if !strings.HasPrefix(line, "[") {
			t.Errorf("a line is no list: %q", line)
		}
	}
}

func TestConsoleIsFollowed(t *testing.T) {
	c, term := cloudFor(t, 1), newTerminal(t)
	var errs, more bytes.Buffer
	if c.schedule(t.Context(), &more, &more, small, "--name", "web", "--wait") != 0 {
		t.Fatal(more.String())
	}
	ctx, interrupt := context.WithCancel(t.Context())
	code := make(chan int, 1)
	go func() { code <- c.schedule(ctx, term, &errs, "console", "-f", "web") }()
	term.await(t, "\n")
	interrupt()
	if got := <-code; got != 0 {
		t.Errorf("exit code %d after an interrupt: %s", got, &errs)
	}
}

func TestInterruptedRequest(t *testing.T) {
	c := cloudFor(t, 1)
	ctx, interrupt := context.WithCancel(t.Context())
	term, out := newTerminal(t), new(bytes.Buffer)
	code := make(chan int, 1)
	go func() { code <- c.schedule(ctx, out, term, small, "/slow.qcow2", "--name", "web", "--wait") }()
	term.await(t, "fetching")
	interrupt()
	if got := <-code; got != croft.ExitFailure {
		t.Errorf("exit code %d after an interrupt", got)
	}
	if screen := term.close(); !strings.Contains(screen, "croft: interrupted: ") {
		t.Errorf("the screen is:\n%q", screen)
	}
	var list, errs bytes.Buffer
	if c.schedule(t.Context(), &list, &errs, "list") != 0 || !strings.Contains(list.String(), "web") {
		t.Errorf("the instance is not left to go on:\n%s%s", &list, &errs)
	}
}

func TestBytesAreCounted(t *testing.T) {
	term := newTerminal(t)
	b := newStatusBars(term.File, []string{"web", "db"})
	fetching := func(p *croft.Progress) croft.Status {
		return croft.Status{
			Instance:    croft.Instance{State: croft.StateScheduled},
			Observation: &croft.Observation{State: croft.StateFetching, Progress: p},
		}
	}
	b.update(0, fetching(&croft.Progress{Done: 10 << 20, Total: 40 << 20}))
	b.update(1, fetching(&croft.Progress{Done: 5 << 20}))
	term.await(t, "10.0 MiB of 40.0 MiB")
	term.await(t, "5.0 MiB")
	term.await(t, "=>")
	b.update(0, fetching(nil))
	b.end(0, nil)
	b.end(1, croft.Errorf(croft.Invalid, "no"))
	b.close()
	if screen := term.close(); !strings.Contains(screen, "failed") {
		t.Errorf("the screen is:\n%q", screen)
	}
}
