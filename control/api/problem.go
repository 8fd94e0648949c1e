package api

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"croft"
	"croft/cluster"
	"croft/schedule"
)

// Code identifies the error for programs. The document lists all codes.
type Code string

// The codes.
const (
	BadRequest         Code = "bad_request"
	SchemaViolation    Code = "schema_violation"
	BadQuery           Code = "bad_query"
	Unauthenticated    Code = "unauthenticated"
	ForbiddenVerb      Code = "forbidden_verb"
	PropertyForbidden  Code = "property_forbidden"
	QuotaExceeded      Code = "quota_exceeded"
	NotFound           Code = "not_found"
	NameTaken          Code = "name_taken"
	UUIDReused         Code = "uuid_reused"
	InUse              Code = "in_use"
	NoCapacity         Code = "no_capacity"
	BadState           Code = "bad_state"
	Compacted          Code = "compacted"
	Gone               Code = "gone"
	GenerationMismatch Code = "generation_mismatch"
	GenerationRequired Code = "generation_required"
	UnsupportedWindow  Code = "unsupported_window"
	Busy               Code = "busy"
	BackendDown        Code = "backend_down"
	Internal           Code = "internal"
)

// meanings maps each code to its HTTP status, and to the Kind that it has for a client.
var meanings = map[Code]struct {
	status int
	kind   croft.Kind
}{
	BadRequest:         {http.StatusBadRequest, croft.Invalid},
	SchemaViolation:    {http.StatusBadRequest, croft.Invalid},
	BadQuery:           {http.StatusBadRequest, croft.Invalid},
	Unauthenticated:    {http.StatusUnauthorized, croft.Denied},
	ForbiddenVerb:      {http.StatusForbidden, croft.Denied},
	PropertyForbidden:  {http.StatusForbidden, croft.Denied},
	QuotaExceeded:      {http.StatusForbidden, croft.OverQuota},
	NotFound:           {http.StatusNotFound, croft.NotFound},
	NameTaken:          {http.StatusConflict, croft.Conflict},
	UUIDReused:         {http.StatusConflict, croft.Conflict},
	InUse:              {http.StatusConflict, croft.Conflict},
	NoCapacity:         {http.StatusConflict, croft.NoCapacity},
	BadState:           {http.StatusConflict, croft.Conflict},
	Compacted:          {http.StatusGone, croft.Conflict},
	Gone:               {http.StatusGone, croft.NotFound},
	GenerationMismatch: {http.StatusPreconditionFailed, croft.Conflict},
	GenerationRequired: {http.StatusPreconditionRequired, croft.Invalid},
	UnsupportedWindow:  {http.StatusNotImplemented, croft.Invalid},
	Busy:               {http.StatusServiceUnavailable, croft.Unavailable},
	BackendDown:        {http.StatusServiceUnavailable, croft.Unavailable},
	Internal:           {http.StatusInternalServerError, ""},
}

// codes maps Kinds to codes, for errors without a more specific code.
var codes = map[croft.Kind]Code{
	croft.Invalid: BadRequest, croft.NotFound: NotFound, croft.Conflict: BadState, croft.NoCapacity: NoCapacity,
	croft.Unavailable: BackendDown, croft.Denied: ForbiddenVerb, croft.OverQuota: QuotaExceeded, "": Internal,
}

// CodeOf returns the code of an error that is no Problem.
func CodeOf(err error) Code { return codes[croft.KindOf(err)] }

// Words returns all codes, sorted.
func (Code) Words() []string {
	var all []string
	for code := range meanings {
		all = append(all, string(code))
	}
	slices.Sort(all)
	return all
}

// Status returns the HTTP status of a code.
func (c Code) Status() int { return meanings[c].status }

// Problem is an error in the API: a problem document of RFC 9457.
type Problem struct {
	Type string `json:"type" const:"about:blank"` // always about:blank: the code is more specific
	// The status in words.
	Title  string `json:"title"`
	Status int    `json:"status"` // the HTTP status
	// The kind of the fault, for programs.
	Code Code `json:"code"`
	// The fault in one sentence, for people.
	Detail string  `json:"detail"`
	Errors []Field `json:"errors,omitempty"` // of schema_violation: what is wrong with each field

	// ID of the request, as the header X-Request-Id of the answer has it.
	Request string `json:"request_id,omitempty"`

	Explanation *schedule.Explanation `json:"explanation,omitempty"` // of no_capacity, about an instance
	Why         []cluster.Dropped     `json:"why,omitempty"`         // of no_capacity, about a cluster
	Cluster     *Cluster              `json:"cluster,omitempty"`     // of gone: the last state of the cluster

	// Of quota_exceeded: the exhausted resource, and the project in the chain of parents whose quota it is.
	Resource  string `json:"resource,omitempty"`
	Limit     *int64 `json:"limit,omitempty"`     // the limit of the project
	Used      *int64 `json:"used,omitempty"`      // how much of the limit is used
	Requested *int64 `json:"requested,omitempty"` // how much the request needs
	// Of quota_exceeded: the project whose limit it is.
	Project croft.Project `json:"project,omitempty"`

	// Of unauthenticated: the projects in which the user has a role, if the request has to name one of them in the
	// header X-Croft-Project.
	Projects []croft.Project `json:"projects,omitempty"`
}

// Field describes the error in one field of a body.
type Field struct {
	Pointer string `json:"pointer"` // JSON pointer into the body
	Detail  string `json:"detail"`  // what is wrong with it
}

// RequestIDHeader is the header with the ID of a request.
const RequestIDHeader = "X-Request-Id"

// NewProblem returns a problem document.
func NewProblem(code Code, detail string) *Problem {
	status := code.Status()
	return &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Code: code, Detail: detail}
}

// The most bytes of a problem's texts, which may repeat what the caller sent.
const (
	longestDetail = 16 << 10
	longestField  = 2 << 10
)

// Bounded returns a copy whose texts are of bounded length.
func (p *Problem) Bounded() *Problem {
	b := new(*p)
	b.Detail, b.Errors = bounded(p.Detail, longestDetail), slices.Clone(p.Errors)
	for i, f := range b.Errors {
		b.Errors[i] = Field{bounded(f.Pointer, longestField), bounded(f.Detail, longestField)}
	}
	return b
}

func bounded(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}

// Error implements error.
func (p *Problem) Error() string { return p.Detail }

// Unwrap returns the error with its Kind. NoCapacity contains a *schedule.Explanation or a *cluster.ChoiceError if the
// server sent one.
func (p *Problem) Unwrap() error {
	kind := meanings[p.Code].kind
	switch {
	case p.Explanation != nil:
		return croft.Errorf(croft.NoCapacity, "%w", p.Explanation)
	case len(p.Why) > 0:
		return &cluster.ChoiceError{Dropped: p.Why}
	case kind == "":
		return nil
	}
	return kind
}

// Clip shortens a caller's word for a message.
func Clip(word string) string {
	if runes := []rune(word); len(runes) > 40 {
		return string(runes[:40]) + "..."
	}
	return word
}

// Hidden is the answer about objects that do not exist, and about objects of other projects.
func Hidden(what, name string) error {
	return NewProblem(NotFound, fmt.Sprintf("there is no %s %s, or it is not yours", what, strconv.Quote(Clip(name))))
}
