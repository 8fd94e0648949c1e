// Package machine says what the grid asks of a machine: run programs there. ssh reaches others; Local is this one.
//
// A program's end, its failure and a lost connection are three things: an *Exit is the program's own answer, Lost means
// that nobody knows what it did or still does.
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

// A Machine runs programs. It may be used by several goroutines.
type Machine interface {
	// Start starts a program. When ctx ends, the program's input ends and Wait returns; the program may go on. Errors:
	// Unavailable, which is Lost if the program may have been started.
	Start(ctx context.Context, c Command) (Process, error)
}

// A Command is a program to run. The zero streams are empty input, and output that is thrown away.
type Command struct {
	Argv           []string // the program and its arguments; no shell reads them
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// A Process is a program that was started.
type Process interface {
	// Wait returns when the program has ended and all of its output was written: nil for exit code 0, else an *Exit, or
	// Lost, or the error of a stream. It is called once.
	Wait() error
}

// Exit is the end of a program with another code than 0.
type Exit struct {
	Code   int    // 1 to 255, or 128 + the signal that ended it
	Stderr string // the start of what it wrote there, if it was kept
}

func (e *Exit) Error() string {
	text := strings.Map(func(r rune) rune { // a terminal obeys nothing of what a machine says
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

// Lost means that the connection to the machine broke, or was given up, after a program may have been started there: it
// may have ended, be running, or start later. Its kind is Unavailable.
type Lost struct{ Err error }

func (e *Lost) Error() string { return "connection lost: " + e.Err.Error() }

// Unwrap returns the cause and the kind.
func (e *Lost) Unwrap() []error { return []error{e.Err, croft.Unavailable} }

const (
	outputMax = 1 << 20 // bytes of a program's output that Output takes
	stderrMax = 4 << 10 // bytes of its standard error that an Exit keeps
)

// Output runs a program to its end and returns what it wrote to its standard output, at most 1 MiB: more is an error of
// kind Invalid, and what comes after it is not read. stdin may be nil.
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

// limited keeps the first max bytes written to it, and calls over at the first one that it drops.
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

// Quote writes a program and its arguments as a POSIX shell reads them.
func Quote(argv ...string) string {
	quoted := make([]string, len(argv))
	for i, a := range argv {
		quoted[i] = quote(a)
	}
	return strings.Join(quoted, " ")
}

// Plain are the characters that no shell gives a meaning, in any place of a word.
const Plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,@%+"

func quote(word string) string {
	if word != "" && strings.Trim(word, Plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
