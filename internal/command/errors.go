package command

import (
	"context"
	"errors"
	"fmt"
	"io"

	"croft"
	"croft/internal/lazyregexp"
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

// report prints one line per failure. end returns what follows the sentence of an error.
func report(stderr io.Writer, err error, end func(error) string) {
	if err == nil {
		return
	}
	for _, err := range apart(err) {
		if e, ok := errors.AsType[*Exited](err); ok {
			report(stderr, e.Err, end)
			continue
		}
		if errors.Is(err, context.Canceled) {
			err = fmt.Errorf("interrupted: %w", err)
		}
		fmt.Fprintln(stderr, Names.Replace("croft: "+plain.Lines(err.Error()+end(err))))
	}
}

// ExitCode returns the exit code for the kind of the first failure. It treats an expired deadline as Unavailable.
func ExitCode(err error) int {
	if err == nil {
		return croft.ExitOK
	}
	first := apart(err)[0]
	if e, ok := errors.AsType[*Exited](first); ok {
		return e.Code
	}
	if croft.KindOf(first) == "" && errors.Is(first, context.DeadlineExceeded) {
		return croft.ExitUnavailable
	}
	return croft.ExitCode(first)
}

// bareNotFound matches a sentence that says that something does not exist, and ends without a remedy.
var bareNotFound = lazyregexp.New(
	`(?:there is no|has no|is no) (?:such )?([a-z]+)(?: of project| of that name| with ID)?(?: "[^"]*"| [^ ;:]+)?` +
		`(?:, (?:or it|and no) [^;:]*)?$`)

// Listing returns the end of the sentence of a NotFound error that names no remedy: the command that lists what exists,
// which list returns for a noun; empty: no list is known.
func Listing(err error, list func(noun string) string) string {
	if croft.KindOf(err) != croft.NotFound {
		return ""
	}
	m := bareNotFound.FindStringSubmatch(err.Error())
	if m == nil || list(m[1]) == "" {
		return ""
	}
	return "; `" + list(m[1]) + "` shows all"
}
