package placement

import (
	"errors"
	"fmt"
	"net/http"

	"croft"
	"croft/placement/ledger"
)

// Error codes from microversion 1.23 on, besides the ledger's.
const (
	codeUndefined    = "placement.undefined_code"
	codeDuplicateKey = "placement.query.duplicate_key"
	codeBadValue     = "placement.query.bad_value"
	codeMissingValue = "placement.query.missing_value"
)

// apiError is an error answer.
type apiError struct {
	status int
	code   string // empty: codeUndefined
	detail string
	allow  string // the Allow header of a 405

	keystone string // of a 401: where to get a token; empty: no Keystone is configured
}

func (e *apiError) Error() string { return e.detail }

func badRequest(format string, args ...any) *apiError {
	return &apiError{status: 400, detail: fmt.Sprintf(format, args...)}
}

func badValue(code, format string, args ...any) *apiError {
	return &apiError{status: 400, code: code, detail: fmt.Sprintf(format, args...)}
}

func notFound(format string, args ...any) *apiError {
	return &apiError{status: 404, detail: fmt.Sprintf(format, args...)}
}

// asAPIError returns the answer for an error: 500 unless it is an apiError or a ledger error.
func asAPIError(err error) *apiError {
	if api, ok := errors.AsType[*apiError](err); ok {
		return api
	}
	refusal, ok := errors.AsType[*ledger.Error](err)
	if !ok {
		return &apiError{status: http.StatusInternalServerError, detail: err.Error()}
	}
	return &apiError{status: statusOf(refusal), code: refusal.Code, detail: refusal.Detail}
}

func statusOf(refusal *ledger.Error) int {
	switch {
	case errors.Is(refusal.Cause, ledger.ErrTooLarge):
		return http.StatusRequestEntityTooLarge
	case errors.Is(refusal.Cause, ledger.ErrFull):
		return http.StatusForbidden
	}
	switch refusal.Kind {
	case croft.Invalid:
		return http.StatusBadRequest
	case croft.NotFound:
		return http.StatusNotFound
	case croft.Conflict:
		return http.StatusConflict
	case croft.Unavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}
