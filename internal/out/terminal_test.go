package out_test

import (
	"os"
	"testing"

	"croft/internal/out"
	"croft/internal/testing/pty"
)

func TestATerminalWithoutASizeIsNotDrawnOn(t *testing.T) {
	term := pty.New(t)
	if !out.Draws(term.File) {
		t.Error("nothing is drawn on a terminal")
	}
	term.Resize(t, 0, 0)
	if !out.IsTerminal(term.File) || out.Draws(term.File) {
		t.Error("a serial console that does not know its size is drawn on")
	}
	file, err := os.Create(t.TempDir() + "/log")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if out.Draws(file) {
		t.Error("a file is drawn on")
	}
}
