package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"croft"
	"croft/internal/testing/pty"
)

// run runs a command of schedule with the cloud's addresses.
func (c *testCloud) schedule(ctx context.Context, stdout, stderr any, args ...string) int {
	asWriter := func(w any) interface{ Write([]byte) (int, error) } {
		if term, ok := w.(*pty.Terminal); ok {
			return term.File
		}
		return w.(*bytes.Buffer)
	}
	return Run(ctx, c.args(append([]string{"schedule"}, args...)...), strings.NewReader(""), asWriter(stdout),
		asWriter(stderr))
}

const small = "VCPU:1,MEMORY_MB:256,DISK_GB:1"

func TestProgressIsDrawnOnATerminal(t *testing.T) {
	c, term, out := cloudFor(t, 2), pty.New(t), new(bytes.Buffer)
	if code := c.schedule(t.Context(), out, term, small, "--wait", "--count", "2", "--name", "web"); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, term.End())
	}
	if strings.Count(out.String(), "NOTIFIED TARGET, ") != 2 {
		t.Errorf("stdout is %q", out)
	}
	screen := term.End()
	for _, want := range []string{"web-1", "web-2", "running at 10."} {
		if !strings.Contains(screen, want) {
			t.Errorf("no %q on the screen:\n%q", want, screen)
		}
	}
}

func TestProgressOfAFailure(t *testing.T) {
	c, term, out := cloudFor(t, 1), pty.New(t), new(bytes.Buffer)
	if code := c.schedule(t.Context(), out, term, small, "/broken.qcow2", "--wait", "--name",
		"bad"); code != croft.ExitUsage {
		t.Errorf("exit code %d", code)
	}
	screen := term.End()
	if !strings.Contains(screen, "failed") || !strings.Contains(screen,
		"croft: instance bad: image file:///broken.qcow2: the checksum is wrong") {
		t.Errorf("the screen is:\n%q", screen)
	}
}

func TestColorsAreForTerminalsAlone(t *testing.T) {
	c := cloudFor(t, 1)
	var plain, errs bytes.Buffer
	if code := c.schedule(t.Context(), &plain, &errs, small, "--wait", "--name", "web"); code != 0 {
		t.Fatalf("exit code %d: %s", code, &errs)
	}
	list := func(term *pty.Terminal) string {
		if code := c.schedule(t.Context(), term, &errs, "list"); code != 0 {
			t.Fatalf("exit code %d: %s", code, &errs)
		}
		return term.End()
	}
	if screen := list(pty.New(t)); !strings.Contains(screen, "\x1b[32mrunning\x1b[0m") {
		t.Errorf("running is not green:\n%q", screen)
	}
	t.Setenv("NO_COLOR", "1")
	if screen := list(pty.New(t)); strings.Contains(screen, "\x1b[") || !strings.Contains(screen, "running") {
		t.Errorf("colors in spite of NO_COLOR:\n%q", screen)
	}
	if plain.Reset(); c.schedule(t.Context(), &plain, &errs, "list") != 0 || strings.Contains(plain.String(), "\x1b") {
		t.Errorf("colors in a file:\n%q", &plain)
	}
}

func TestListIsWatched(t *testing.T) {
	c, term := cloudFor(t, 1), pty.New(t)
	ctx, interrupt := context.WithCancel(t.Context())
	code := make(chan int, 1)
	var errs, more bytes.Buffer
	go func() { code <- c.schedule(ctx, term, &errs, "list", "-w") }()
	term.Await(t, "NAME")
	if c.schedule(t.Context(), &more, &more, small, "--name", "web", "--wait") != 0 ||
		c.schedule(t.Context(), &more, &more, "stop", "web") != 0 {
		t.Fatal(more.String())
	}
	term.Await(t, "stopped")
	interrupt()
	if got := <-code; got != 0 {
		t.Errorf("exit code %d after an interrupt: %s", got, &errs)
	}
}

func TestWatchedListAsLines(t *testing.T) {
	c, term := cloudFor(t, 1), pty.New(t)
	t.Setenv("TERM", "dumb") // not a terminal that can be drawn on
	ctx, interrupt := context.WithCancel(t.Context())
	code := make(chan int, 1)
	var errs, more bytes.Buffer
	go func() { code <- c.schedule(ctx, term, &errs, "list", "-w", "-o", "json") }()
	term.Await(t, "[]")
	if c.schedule(t.Context(), &more, &more, small, "--name", "web", "--wait") != 0 {
		t.Fatal(more.String())
	}
	term.Await(t, `"state":"running"`)
	interrupt()
	if got := <-code; got != 0 {
		t.Errorf("exit code %d after an interrupt: %s", got, &errs)
	}
	for line := range strings.Lines(term.End()) {
		if !strings.HasPrefix(line, "[") {
			t.Errorf("a line is no list: %q", line)
		}
	}
}

func TestConsoleIsFollowed(t *testing.T) {
	c, term := cloudFor(t, 1), pty.New(t)
	var errs, more bytes.Buffer
	if c.schedule(t.Context(), &more, &more, small, "--name", "web", "--wait") != 0 {
		t.Fatal(more.String())
	}
	ctx, interrupt := context.WithCancel(t.Context())
	code := make(chan int, 1)
	go func() { code <- c.schedule(ctx, term, &errs, "console", "-f", "web") }()
	term.Await(t, "\n")
	interrupt()
	if got := <-code; got != 0 {
		t.Errorf("exit code %d after an interrupt: %s", got, &errs)
	}
}

func TestInterruptedRequest(t *testing.T) {
	c := cloudFor(t, 1)
	ctx, interrupt := context.WithCancel(t.Context())
	term, out := pty.New(t), new(bytes.Buffer)
	code := make(chan int, 1)
	go func() { code <- c.schedule(ctx, out, term, small, "/slow.qcow2", "--name", "web", "--wait") }()
	term.Await(t, "fetching")
	interrupt()
	if got := <-code; got != croft.ExitFailure {
		t.Errorf("exit code %d after an interrupt", got)
	}
	if screen := term.End(); !strings.Contains(screen, "croft: interrupted: ") {
		t.Errorf("the screen is:\n%q", screen)
	}
	var list, errs bytes.Buffer
	if c.schedule(t.Context(), &list, &errs, "list") != 0 || !strings.Contains(list.String(), "web") {
		t.Errorf("the instance is not left to go on:\n%s%s", &list, &errs)
	}
}

// TestRemovalOfSeveralIsConfirmedOnATerminal: a person sees the list, and only yes removes it.
func TestRemovalOfSeveralIsConfirmedOnATerminal(t *testing.T) {
	c := cloudFor(t, 2)
	if code := c.schedule(t.Context(), new(bytes.Buffer), new(bytes.Buffer), small, "--count", "2", "--name",
		"web"); code != croft.ExitOK {
		t.Fatalf("schedule ended with %d", code)
	}
	for _, answer := range []struct {
		text string
		code int
	}{{"\r", croft.ExitUsage}, {"no\r", croft.ExitUsage}, {"y\r", croft.ExitUsage}, {"yes\r", croft.ExitOK}} {
		screen := pty.New(t)
		ended := make(chan int, 1)
		go func() {
			ended <- Run(t.Context(), c.args("schedule", "remove", "web-1", "web-2"), screen.File, screen.File,
				screen.File)
		}()
		screen.Await(t, "remove 2 instances? Type yes: ")
		if _, err := screen.Master.WriteString(answer.text); err != nil {
			t.Fatal(err)
		}
		code := <-ended
		if shown := screen.End(); code != answer.code || !strings.Contains(shown, "web-1") ||
			!strings.Contains(shown, "web-2") {
			t.Errorf("after %q it ended with %d, and the screen is:\n%s", answer.text, code, shown)
		}
	}
}
