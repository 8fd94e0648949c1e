package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// ReadSecret prompts on a terminal for a line that is not shown. If ctx ends first, it turns the terminal's echo on
// again, and the error is an *Interrupted; the read itself ends with the next line or with the process.
func ReadSecret(ctx context.Context, terminal *os.File, prompts io.Writer, prompt string) ([]byte, error) {
	fd := int(terminal.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return nil, fmt.Errorf("ask for the %s: %w", prompt, err)
	}
	fmt.Fprint(prompts, prompt+": ")
	defer fmt.Fprintln(prompts)
	type line struct {
		text []byte
		err  error
	}
	typed := make(chan line, 1)
	go func() {
		text, err := term.ReadPassword(fd)
		typed <- line{text, err}
	}()
	select {
	case l := <-typed:
		return l.text, l.err
	case <-ctx.Done():
		return nil, errors.Join(&Interrupted{Text: "stopped asking for the " + prompt + ": nothing was done"},
			term.Restore(fd, before))
	}
}
