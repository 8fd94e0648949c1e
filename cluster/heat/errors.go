package heat

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2"

	"croft"
	"croft/cluster"
	"croft/cluster/outbound"
	"croft/internal/lazyregexp"
	"croft/internal/plain"
)

// answer is an error response of a service. It keeps only type and message.
type answer struct {
	status        int
	kind, message string
	json          bool // the service sent it, not a proxy in front of it
}

// answerOf returns the response in an error.
func answerOf(err error) (answer, bool) {
	if again, ok := errors.AsType[*gophercloud.ErrUnableToReauthenticate](err); ok {
		return answerOf(again.ErrReauth)
	}
	if after, ok := errors.AsType[*gophercloud.ErrErrorAfterReauthentication](err); ok {
		return answerOf(after.ErrOriginal)
	}
	e, ok := errors.AsType[gophercloud.ErrUnexpectedResponseCode](err)
	if !ok {
		return answer{}, false
	}
	var body struct {
		Error struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		} `json:"error"`
		Forbidden, BadRequest, NotFound, OverLimit struct { // of Nova
			Message string `json:"message"`
		}
		Neutron struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		} `json:"NeutronError"`
	}
	a := answer{status: e.Actual, json: json.Unmarshal(e.Body, &body) == nil}
	for _, m := range []string{body.Error.Message, body.Neutron.Message, body.Forbidden.Message, body.OverLimit.Message,
		body.BadRequest.Message, body.NotFound.Message, http.StatusText(e.Actual)} {
		if a.message == "" {
			a.message = m
		}
	}
	a.kind = body.Error.Type + body.Neutron.Type
	return a, true
}

// String formats an answer as one line.
func (a answer) String() string {
	text := fmt.Sprintf("%d %s: %s", a.status, a.kind, a.message)
	if a.kind == "" {
		text = fmt.Sprintf("%d %s", a.status, a.message)
	}
	return plain.Cut(text, cluster.MaxMessage)
}

// missing reports whether Heat itself says that the stack does not exist. The page of a proxy proves nothing.
func missing(err error) bool {
	a, ok := answerOf(err)
	return ok && a.status == http.StatusNotFound && a.json && (a.kind == "EntityNotFound" || a.kind == "StackNotFound")
}

// forbidden reports whether Heat refuses to show a stack of another project.
func forbidden(err error) bool {
	a, ok := answerOf(err)
	return ok && a.status == http.StatusForbidden && a.json
}

// noRoom matches failures for which another site may succeed.
var noRoom = lazyregexp.New(`(?i)no valid host|quota|maximum (number of )?stacks|maximum .* exceeded|exceeded for resources|` +
	`not enough (hosts|resources)|no more (ip|floating)|insufficient (free )?(host|compute|disk|memory)`)

// explain converts an error of a service to one that can be shown to users, with the values in hidden masked.
func (s *session) explain(what string, err error, hidden ...string) error {
	if err == nil {
		return nil
	}
	if again, ok := errors.AsType[*gophercloud.ErrUnableToReauthenticate](err); ok {
		return s.explain(what, again.ErrReauth, hidden...)
	}
	if done, ok := errors.AsType[*explained](err); ok {
		return done // from a renewal of the token
	}
	a, ok := answerOf(err)
	if !ok {
		return unanswered(err, croft.Errorf(croft.Unavailable, "site %s: %s: %s", s.site.Name, what,
			s.mask(outbound.Explain("its server", err), hidden...)))
	}
	if a.status >= http.StatusInternalServerError && a.json {
		s.doubtful.Store(true) // Heat also answers so if the token was revoked
	}
	explanation := croft.Errorf(a.kindOfError(), "site %s: %s: %s", s.site.Name, what,
		s.mask(a.String(), hidden...))
	if croft.KindOf(explanation) == croft.Unavailable {
		return cluster.Faulty(explanation)
	}
	return explanation
}

// unanswered marks the explanation of an error as silence if no response arrived, and otherwise as a fault.
func unanswered(err, explanation error) error {
	if outbound.NoResponse(err) {
		return cluster.Silent(explanation)
	}
	return cluster.Faulty(explanation)
}

// whole returns an object that gophercloud extracted from a response, which is never nil without an error. gophercloud
// itself returns nil and no error for JSON without the object, such as {}.
func whole[T any](v *T, err error) (*T, error) {
	if err == nil && v == nil {
		err = &json.UnmarshalTypeError{Value: "null", Type: reflect.TypeFor[T]()}
	}
	return v, err
}

// kindOfError classifies an answer.
func (a answer) kindOfError() croft.Kind {
	switch {
	case !a.json && a.status != http.StatusUnauthorized:
		return croft.Unavailable
	case a.full():
		return croft.NoCapacity
	case a.status == http.StatusUnauthorized, a.status == http.StatusForbidden:
		return croft.Denied
	case a.status == http.StatusNotFound:
		return croft.NotFound
	case a.status == http.StatusBadRequest:
		return croft.Invalid
	case a.status == http.StatusConflict:
		return croft.Conflict
	}
	return croft.Unavailable
}

// full reports whether the project has reached a limit. That is a definite refusal: nothing was created.
func (a answer) full() bool {
	switch a.status {
	case http.StatusForbidden, http.StatusRequestEntityTooLarge:
	case http.StatusBadRequest: // a template that is too long also has the type RequestLimitExceeded
		if a.kind != "RequestLimitExceeded" {
			return false
		}
	case http.StatusConflict:
		return a.kind == "OverQuota"
	default:
		return false
	}
	return noRoom.MatchString(a.message)
}

// explained is an error that can be shown to users unchanged.
type explained struct{ error }

// Unwrap returns the error with its kind.
func (e *explained) Unwrap() error { return e.error }

// explainLogin converts the error of a login to one that can be shown to users.
func (s *session) explainLogin(err error) error {
	server := "Keystone at " + host(s.site.AuthURL)
	a, ok := answerOf(err)
	kind, text := croft.Unavailable, ""
	switch {
	case !ok:
		text = outbound.Explain(server, err)
	case a.json && slices.Contains([]int{http.StatusUnauthorized, http.StatusForbidden, http.StatusBadRequest},
		a.status):
		kind, text = croft.Denied, server+" refuses the credential: "+a.String()
	case a.status == http.StatusNotFound:
		text = server + " is no Keystone of version 3: " + a.String()
	default:
		text = server + " answers " + a.String()
	}
	explanation := croft.Errorf(kind, "site %s: %s", s.site.Name, s.mask(text))
	if kind == croft.Unavailable {
		explanation = unanswered(err, explanation)
	}
	return &explained{explanation}
}

// shortestSecret is the minimum length, in bytes, of values that are masked in messages: shorter ones would mask parts
// of words.
const shortestSecret = 3

// mask replaces secrets in a text: the secret of the credential, and the given values.
func (s *session) mask(text string, hidden ...string) string {
	for _, value := range append(hidden, s.secret) {
		if len(value) >= shortestSecret {
			text = strings.ReplaceAll(text, value, "[secret]")
		}
	}
	return text
}

// hidden returns the values of a build that must never be shown.
func hidden(b cluster.Build, c cluster.Contract) []string {
	var values []string
	for name, value := range b.Parameters {
		if !c.Declared[name].Hidden && !cluster.Hidden(name) {
			continue
		}
		if text, ok := value.(string); ok {
			values = append(values, text)
		} else if text, err := json.Marshal(value); err == nil {
			values = append(values, string(text))
		}
	}
	// A value that contains another one must be replaced first.
	slices.SortFunc(values, func(a, b string) int { return len(b) - len(a) })
	return values
}

// cut shortens a reason to one line of storable length.
func cut(text string) string { return plain.Cut(text, cluster.MaxMessage) }
