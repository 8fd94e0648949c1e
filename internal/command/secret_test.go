package command_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"croft/internal/command"
	"croft/internal/testing/pty"
)

func TestASecretIsNotShown(t *testing.T) {
	term := pty.New(t)
	read := make(chan string, 1)
	go func() {
		text, err := command.ReadSecret(t.Context(), term.File, term, "password")
		if err != nil {
			t.Error(err)
		}
		read <- string(text)
	}()
	term.Await(t, "password: ")
	hidden(t, term)
	term.Type(t, "sesame\n")
	if got := <-read; got != "sesame" {
		t.Errorf("got %q", got)
	}
	if screen := term.End(); strings.Contains(screen, "sesame") {
		t.Errorf("it is shown: %q", screen)
	}
}

func TestAnInterruptEndsTheQuestion(t *testing.T) {
	term := pty.New(t)
	ctx, interrupt := context.WithCancel(t.Context())
	asked := make(chan error, 1)
	var prompts bytes.Buffer
	go func() {
		_, err := command.ReadSecret(ctx, term.File, &prompts, "password")
		asked <- err
	}()
	hidden(t, term)
	interrupt()
	err := <-asked
	if _, is := errors.AsType[*command.Interrupted](err); !is || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if !echoes(t, term) {
		t.Error("the terminal shows nothing any more")
	}
	if got := prompts.String(); got != "password: \n" {
		t.Errorf("it wrote %q", got)
	}
	term.Type(t, "\n") // the read ends before the terminal does
}

// hidden waits until the terminal does not show typed text.
func hidden(t *testing.T, term *pty.Terminal) {
	t.Helper()
	for echoes(t, term) {
		if t.Context().Err() != nil {
			t.Fatal("what is typed is shown")
		}
	}
}

func echoes(t *testing.T, term *pty.Terminal) bool {
	t.Helper()
	state, err := unix.IoctlGetTermios(int(term.Master.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return state.Lflag&unix.ECHO != 0
}
