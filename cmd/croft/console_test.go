package main

import (
	"bytes"
	"strings"
	"testing"

	"croft"
	"croft/cli/instances"
	"croft/internal/testing/pty"
)

// TestConsoleIsLiveOnATerminal types at a guest's console and leaves it.
func TestConsoleIsLiveOnATerminal(t *testing.T) {
	c := cloudFor(t, 1)
	if code := c.schedule(t.Context(), new(bytes.Buffer), new(bytes.Buffer), small, "--name", "web",
		"--wait"); code != croft.ExitOK {
		t.Fatalf("schedule ended with %d", code)
	}
	screen := pty.New(t)
	ended := make(chan int, 1)
	go func() {
		ended <- Run(t.Context(), c.args("schedule", "console", "web"), screen.File, screen.File, screen.File)
	}()
	screen.Await(t, "Ctrl-] leaves") // from here on the terminal does not echo
	if _, err := screen.Master.WriteString("hello there\r"); err != nil {
		t.Fatal(err)
	}
	screen.Await(t, "hello there\r\n")
	if _, err := screen.Master.Write([]byte{instances.EscapeKey}); err != nil {
		t.Fatal(err)
	}
	if code := <-ended; code != croft.ExitOK {
		t.Errorf("it ended with %d:\n%s", code, screen.End())
	}
	log := new(bytes.Buffer)
	if code := c.schedule(t.Context(), log, new(bytes.Buffer), "logs", "web"); code != croft.ExitOK ||
		!strings.Contains(log.String(), "hello there") {
		t.Errorf("logs ended with %d: %s", code, log.String())
	}
}
