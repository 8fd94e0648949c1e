// Package machine defines how the grid runs programs on a machine. Package ssh implements it for remote machines, and
// Local for this one.
//
// Callers can distinguish a program that failed from a connection that was lost: an *Exit is the program's own exit
// code, and Lost means that it is unknown what the program did or whether it still runs.
package machine

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"unicode"

	"croft"
)

// A Machine runs programs. It is safe for concurrent use.
type Machine interface {
	// Start starts a program. When ctx ends, the program's input ends and Wait returns; the program may continue to
	// run. Errors: Unavailable. The error is Lost if the program may have been started.
	Start(ctx context.Context, c Command) (Process, error)
}

// A Command is a program to run. With a nil Stdin the input is empty; output to a nil Stdout or Stderr is discarded.
type Command struct {
	Argv           []string // the program and its arguments; no shell interprets them
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// A Process is a program that was started.
type Process interface {
	// Wait returns after the program has ended and all of its output has been written. It returns nil for exit code 0,
	// else an *Exit, a Lost or the error of a stream. It must be called once.
	Wait() error
}

// Exit reports that a program ended with an exit code other than 0.
type Exit struct {
	Code   int    // 1 to 255, or 128 + the signal that ended the program
	Stderr string // the first 4 KiB of its standard error, if captured
}

func (e *Exit) Error() string {
	text := strings.Map(func(r rune) rune { // a machine's output must not control the terminal
		if !unicode.IsPrint(r) && r != '\n' && r != '\t' {
			return ' '
		}
		return r
	}, e.Stderr)
	if text = strings.TrimSpace(text); text != "" {
		return fmt.Sprintf("exit code %d: %s", e.Code, text)
	}
	return fmt.Sprintf("exit code %d", e.Code)
}

// Lost reports that the connection to the machine broke, or was abandoned, after a program may have been started there:
// the program may have ended, still be running, or start later. Its Kind is Unavailable.
type Lost struct{ Err error }

func (e *Lost) Error() string { return "connection lost: " + e.Err.Error() }

// Unwrap returns the cause and the Kind.
func (e *Lost) Unwrap() []error { return []error{e.Err, croft.Unavailable} }

const (
	outputMax = 1 << 20 // maximum size of the output that Output returns, in bytes
	stderrMax = 4 << 10 // maximum size of Exit.Stderr, in bytes
)

// Output runs a program until it ends and returns its standard output, at most 1 MiB. A program that writes more gets
// an error of Kind Invalid, and the rest of its output is not read. stdin may be nil.
func Output(ctx context.Context, m Machine, stdin io.Reader, argv ...string) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out := &limited{max: outputMax, over: cancel}
	complaint := &limited{max: stderrMax}
	p, err := m.Start(ctx, Command{Argv: argv, Stdin: stdin, Stdout: out, Stderr: complaint})
	if err != nil {
		return "", err
	}
	err = p.Wait()
	if out.dropped {
		return "", croft.Errorf(croft.Invalid, "%s: more than %d bytes of output", argv[0], outputMax)
	}
	if exit, ok := err.(*Exit); ok { //nolint:errorlint // Wait returns it as it is
		exit.Stderr = complaint.text.String()
	}
	return out.text.String(), err
}

// limited keeps the first max bytes written to it, and calls over when it first drops a byte.
type limited struct {
	text    bytes.Buffer
	max     int
	dropped bool
	over    func()
}

func (l *limited) Write(p []byte) (int, error) {
	keep := p[:min(len(p), l.max-l.text.Len())]
	l.text.Write(keep)
	if len(keep) < len(p) && !l.dropped {
		l.dropped = true
		if l.over != nil {
			l.over()
		}
	}
	return len(p), nil
}

// Quote returns a program and its arguments as a command line for a POSIX shell.
func Quote(argv ...string) string {
	quoted := make([]string, len(argv))
	for i, a := range argv {
		quoted[i] = quote(a)
	}
	return strings.Join(quoted, " ")
}

// Plain lists the characters that have no special meaning to a shell in any position of a word.
const Plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,@%+"

func quote(word string) string {
	if word != "" && strings.Trim(word, Plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
