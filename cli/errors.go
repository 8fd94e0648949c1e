package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"

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

// report prints one line per failure. end returns what follows the sentence of an error.
func report(stderr io.Writer, err error, end func(error) string) {
	if err == nil {
		return
	}
	for _, err := range apart(err) {
		if e, ok := errors.AsType[*command.Exited](err); ok {
			report(stderr, e.Err, end)
			continue
		}
		if errors.Is(err, context.Canceled) {
			err = fmt.Errorf("interrupted: %w", err)
		}
		fmt.Fprintln(stderr, "croft:", plain.Lines(err.Error()+end(err)))
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

// listings maps each noun of a NotFound error to the command that lists what exists.
var listings = map[string]string{
	"aggregate": "croft aggregate list", "appliance": "croft cluster appliance list", "cluster": "croft cluster list",
	"context": "croft context list", "credential": "croft cluster credential list", "host": "croft host list",
	"image": "croft image list", "implementation": "croft cluster appliance implementation list APPLIANCE",
	"instance": "schedule list", "key": "croft key list", "member": "croft project show PROJECT",
	"partition": "croft partition list", "peer": "croft partition peer list", "policy": "croft policy list",
	"pool": "croft pool list", "project": "croft project list", "resource": "croft pool resources",
	"site": "croft cluster site list", "ticket": "croft pool ticket list", "token": "croft token list --for api",
}

// bareNotFound matches a sentence that says that something does not exist, and ends without a remedy.
var bareNotFound = regexp.MustCompile(
	`(?:there is no|has no|is no) (?:such )?([a-z]+)(?: of project| of that name| with ID)?(?: "[^"]*"| [^ ;:]+)?` +
		`(?:, (?:or it|and no) [^;:]*)?$`)

// listing returns the end of the sentence of a NotFound error that names no remedy: the command that lists what exists.
func (p Program) listing(err error) string {
	if croft.KindOf(err) != croft.NotFound {
		return ""
	}
	m := bareNotFound.FindStringSubmatch(err.Error())
	if m == nil {
		return ""
	}
	command := listings[m[1]]
	for _, more := range p.More {
		command = cmp.Or(command, more.Listings[m[1]])
	}
	if command == "" {
		return ""
	}
	return "; `" + command + "` shows all"
}
