package ledger

import (
	"errors"
	"fmt"

	"croft"
)

// Error codes of refusals, defined by the Placement API.
const (
	CodeConcurrentUpdate = "placement.concurrent_update"
	CodeDuplicateName    = "placement.duplicate_name"
	CodeInventoryInUse   = "placement.inventory.inuse"
	CodeProviderInUse    = "placement.resource_provider.inuse"
	CodeProviderNotFound = "placement.resource_provider.not_found"
	CodeProviderIsParent = "placement.resource_provider.cannot_delete_parent"
)

// ErrFull reports that the limit of custom names is reached.
var ErrFull = errors.New("there are too many custom names")

// Error is a refusal, in the words of the Placement API.
type Error struct {
	Kind   croft.Kind
	Code   string // empty: the API has no code for it
	Detail string
	Cause  error // ErrFull, ErrTooLarge or nil
}

// Error implements error.
func (e *Error) Error() string { return e.Detail }

// Is reports whether the error is of a kind.
func (e *Error) Is(target error) bool { return target == error(e.Kind) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

func invalid(format string, args ...any) *Error {
	return &Error{Kind: croft.Invalid, Detail: fmt.Sprintf(format, args...)}
}

func notFound(format string, args ...any) *Error {
	return &Error{Kind: croft.NotFound, Detail: fmt.Sprintf(format, args...)}
}

func conflict(code, format string, args ...any) *Error {
	return &Error{Kind: croft.Conflict, Code: code, Detail: fmt.Sprintf(format, args...)}
}

// unavailable reports that the store does not answer, or did not confirm a write.
func unavailable(err error) *Error {
	return &Error{Kind: croft.Unavailable, Detail: "The state could not be read or written: " + err.Error()}
}

// tooManyEntries refuses a request with more entries than one transaction of the store can hold.
func tooManyEntries(size, limit int) *Error {
	const text = "The request concerns %d entries of the store and one transaction can hold %d. " +
		"Split it, or raise etcd's --max-txn-ops."
	return &Error{Kind: croft.Invalid, Cause: ErrTooLarge, Detail: fmt.Sprintf(text, size, limit)}
}

// tooManyBytes refuses a request whose entries are too large for one transaction of the store.
func tooManyBytes(err error) *Error {
	const text = "The request is too large for one transaction of the store: %v. " +
		"Split it, or raise etcd's --max-request-bytes."
	return &Error{Kind: croft.Invalid, Cause: ErrTooLarge, Detail: fmt.Sprintf(text, err)}
}
