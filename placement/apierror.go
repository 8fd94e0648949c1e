package placement

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"croft"
	"croft/placement/ledger"
)

// The codes of errors, from microversion 1.23 on, besides those of the ledger.
const (
	codeUndefined    = "placement.undefined_code"
	codeDuplicateKey = "placement.query.duplicate_key"
	codeBadValue     = "placement.query.bad_value"
	codeMissingValue = "placement.query.missing_value"
)

// apiError is an answer that is an error.
type apiError struct {
	status int
	code   string // empty: codeUndefined
	detail string
	allow  string // the Allow header of a 405

	keystone string // of a 401: where to get a token; empty: no Keystone
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

// asAPIError returns the answer for an error. Those that are neither apiErrors nor of the ledger are 500.
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

// explanations precede the detail, by status, as in the original.
var explanations = map[int]string{
	400: "The server could not comply with the request since it is either malformed or otherwise incorrect.",
	401: "This server could not verify that you are authorized to access the document you requested. " +
		"Either you supplied the wrong credentials (e.g., bad password), or your browser does not understand " +
		"how to supply the credentials required.",
	403: "Access was denied to this resource.",
	404: "The resource could not be found.",
	409: "There was a conflict when trying to complete your request.",
	413: "The body of your request was too large for this server.",
	500: "The server has either erred or is incapable of performing the requested operation.",
	503: "The server is currently unavailable. Please try again at a later time.",
}

var titles = map[int]string{413: "Request Entity Too Large"}

func title(status int) string {
	if t, ok := titles[status]; ok {
		return t
	}
	return http.StatusText(status)
}

// body is an error's text with mark-up, from which each format makes its own.
func (e *apiError) body(q *request) string {
	switch e.status {
	case 405:
		return fmt.Sprintf("The method %s is not allowed for this resource. <br /><br />\n%s", q.r.Method, e.detail)
	case 406:
		return fmt.Sprintf("The resource could not be generated that was acceptable to your browser\n"+
			"(content of type %s. <br /><br />\n%s", q.accept, e.detail)
	case 415:
		return fmt.Sprintf("The request media type %s is not supported by this server.\n<br /><br />\n%s",
			cmp.Or(q.r.Header.Get("Content-Type"), "None"), e.detail)
	}
	return explanations[e.status] + "<br /><br />\n" + e.detail + "\n\n"
}

var escapeHTML = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&#x27;")

var (
	breaks   = regexp.MustCompile(`(?i)<br.*?>`)
	comments = regexp.MustCompile(`<!--|-->`)
	tags     = regexp.MustCompile(`<.*?>`)
)

// plain strips the mark-up, line ends included.
func plain(text string) string {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\n", " "), "\r", "")
	text = breaks.ReplaceAllString(text, "\n")
	return tags.ReplaceAllString(comments.ReplaceAllString(text, ""), "")
}

// respond writes the error in the format that the client prefers.
func (e *apiError) respond(q *request) *response {
	resp := &response{status: e.status}
	if e.keystone != "" {
		return e.challenge(resp)
	}
	if e.allow != "" {
		resp.set("Allow", e.allow)
	}
	status := strconv.Itoa(e.status) + " " + title(e.status)
	switch preferred(q.accept, "text/html", "application/json") {
	case "application/json":
		resp.contentType = "application/json"
		resp.body = e.json(q, status)
	case "text/html":
		resp.contentType = "text/html; charset=UTF-8"
		escaped := *e
		escaped.detail = escapeHTML.Replace(e.detail)
		resp.body = fmt.Appendf(nil, "<html>\n <head>\n  <title>%s</title>\n </head>\n <body>\n"+
			"  <h1>%s</h1>\n  %s\n </body>\n</html>", status, status, escaped.body(q))
	default:
		resp.contentType = "text/plain; charset=UTF-8"
		resp.body = []byte(status + "\n\n" + plain(e.body(q)))
	}
	return resp
}

// challenge is the 401 of keystonemiddleware, which guards the original: JSON, whatever the client prefers.
func (e *apiError) challenge(resp *response) *response {
	resp.set("WWW-Authenticate", `Keystone uri="`+e.keystone+`"`)
	resp.contentType = "application/json"
	const text = "The request you have made requires authentication."
	resp.body = []byte(`{"error": {"code": 401, "title": "Unauthorized", "message": "` + text + `"}}`)
	return resp
}

func (e *apiError) json(q *request, status string) []byte {
	if e.status == http.StatusUnauthorized { // the original answers this one in a form of its own
		return encode(struct {
			Message string `json:"message"`
			Code    string `json:"code"`
			Title   string `json:"title"`
		}{e.body(q) + "\n", status, "Unauthorized"})
	}
	type document struct {
		Status     int    `json:"status"`
		Title      string `json:"title"`
		Detail     string `json:"detail"`
		Code       string `json:"code,omitempty"`
		RequestID  string `json:"request_id"`
		MaxVersion string `json:"max_version,omitempty"`
		MinVersion string `json:"min_version,omitempty"`
	}
	d := document{Status: e.status, Title: title(e.status), Detail: plain(e.body(q)), RequestID: q.id}
	if q.versioned && q.version >= 23 {
		d.Code = cmp.Or(e.code, codeUndefined)
	}
	if e.status == http.StatusNotAcceptable && !q.versioned {
		d.MaxVersion, d.MinVersion = maxVersion.String(), minVersion.String()
	}
	return encode(struct {
		Errors []document `json:"errors"`
	}{[]document{d}})
}
