package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"croft"
	"croft/internal/command"
	"croft/internal/plain"
)

// apart splits errors that errors.Join joined, because each is a separate failure.
func apart(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error }) // a wrapped error is part of its sentence
	if !ok {
		return []error{err}
	}
	all := joined.Unwrap()
	if err.Error() != errors.Join(all...).Error() {
		return []error{err} // fmt.Errorf made it from several errors
	}
	var flat []error
	for _, one := range all {
		flat = append(flat, apart(one)...)
	}
	return flat
}

// report prints one line per failure.
func report(stderr io.Writer, err error) {
	if err == nil {
		return
	}
	for _, err := range apart(err) {
		if e, ok := errors.AsType[*command.Exited](err); ok {
			report(stderr, e.Err)
			continue
		}
		if errors.Is(err, context.Canceled) {
			err = fmt.Errorf("interrupted: %w", err)
		}
		fmt.Fprintln(stderr, "croft:", plain.Lines(err.Error()))
	}
}

// exitCode returns the exit code for the kind of the first failure. It treats an expired deadline as Unavailable.
func exitCode(err error) int {
	if err == nil {
		return croft.ExitOK
	}
	first := apart(err)[0]
	if e, ok := errors.AsType[*command.Exited](first); ok {
		return e.Code
	}
	if croft.KindOf(first) == "" && errors.Is(first, context.DeadlineExceeded) {
		return croft.ExitUnavailable
	}
	return croft.ExitCode(first)
}
