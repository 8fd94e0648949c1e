package croft

import (
	"errors"
	"fmt"
	"net/http"
)

// Kind classifies an error once, where its cause is known. A Kind is itself an error, so errors.Is(err, croft.Conflict)
// tests for it through any wrapping.
type Kind string

// The kinds.
const (
	Invalid     Kind = "invalid"     // the request is wrong; repeating it cannot help
	NotFound    Kind = "not found"   // the named object does not exist
	Conflict    Kind = "conflict"    // a concurrent change won, or the name is in use
	NoCapacity  Kind = "no capacity" // nothing left fits
	Unavailable Kind = "unavailable" // a part does not answer now; it may later
	Denied      Kind = "denied"      // the caller is unknown, or lacks permission
	OverQuota   Kind = "over quota"  // a limit of a project forbids it
)

func (k Kind) Error() string { return string(k) }

type kindError struct {
	kind Kind
	err  error
}

func (e *kindError) Error() string        { return e.err.Error() }
func (e *kindError) Unwrap() error        { return e.err }
func (e *kindError) Is(target error) bool { return target == error(e.kind) }

// Errorf is fmt.Errorf with a kind. Of several kinds in a chain the outermost applies.
func Errorf(kind Kind, format string, args ...any) error {
	return &kindError{kind: kind, err: fmt.Errorf(format, args...)}
}

// KindOf returns the outermost kind of err, or "" if it has none.
func KindOf(err error) Kind {
	if k, ok := errors.AsType[*kindError](err); ok {
		return k.kind
	}
	if k, ok := errors.AsType[Kind](err); ok {
		return k
	}
	return ""
}

// TakenError says that a name or an ID belongs to another cluster or instance. Its kind is Conflict.
type TakenError struct {
	What string // "name" or "id"
	By   string // its UUID; empty: unknown
	Text string
}

// Error implements error.
func (e *TakenError) Error() string { return e.Text }

// Unwrap returns its kind.
func (e *TakenError) Unwrap() error { return Conflict }

// HTTPStatus maps the kind of err to a status code; nil is 200, no kind is 500.
func HTTPStatus(err error) int {
	if err == nil {
		return http.StatusOK
	}
	switch KindOf(err) {
	case Invalid:
		return http.StatusBadRequest
	case NotFound:
		return http.StatusNotFound
	case Conflict, NoCapacity:
		return http.StatusConflict
	case Unavailable:
		return http.StatusServiceUnavailable
	case Denied, OverQuota:
		return http.StatusForbidden
	}
	return http.StatusInternalServerError
}

// The exit codes of every command.
const (
	ExitOK          = 0
	ExitFailure     = 1
	ExitUsage       = 2
	ExitNotFound    = 3
	ExitNoCapacity  = 4 // also: over quota
	ExitConflict    = 5
	ExitUnavailable = 6 // also: timed out
	ExitDenied      = 7
)

// ExitCode maps the kind of err to a command's exit code.
func ExitCode(err error) int {
	if err == nil {
		return ExitOK
	}
	switch KindOf(err) {
	case Invalid:
		return ExitUsage
	case NotFound:
		return ExitNotFound
	case NoCapacity, OverQuota:
		return ExitNoCapacity
	case Conflict:
		return ExitConflict
	case Unavailable:
		return ExitUnavailable
	case Denied:
		return ExitDenied
	}
	return ExitFailure
}
