package placement

import (
	"cmp"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"croft"
	"croft/placement/internal/pyjson"
)

// The codes of errors, from microversion 1.23 on.
const (
	codeUndefined        = "placement.undefined_code"
	codeConcurrentUpdate = "placement.concurrent_update"
	codeDuplicateName    = "placement.duplicate_name"
	codeInventoryInUse   = "placement.inventory.inuse"
	codeProviderInUse    = "placement.resource_provider.inuse"
	codeProviderNotFound = "placement.resource_provider.not_found"
	codeProviderIsParent = "placement.resource_provider.cannot_delete_parent"
	codeDuplicateKey     = "placement.query.duplicate_key"
	codeBadValue         = "placement.query.bad_value"
	codeMissingValue     = "placement.query.missing_value"
)

// apiError is an answer that is an error.
type apiError struct {
	status int
	code   string // codeUndefined where empty
	detail string
	allow  string     // the Allow header of a 405
	kind   croft.Kind // for callers that are not clients of the API

	keystone string // of a 401: where to get a token; empty without a Keystone
}

func (e *apiError) Error() string        { return e.detail }
func (e *apiError) Is(target error) bool { return e.kind != "" && target == error(e.kind) }

func badRequest(format string, args ...any) *apiError {
	return &apiError{status: 400, detail: fmt.Sprintf(format, args...), kind: croft.Invalid}
}

func badValue(code, format string, args ...any) *apiError {
	return &apiError{status: 400, code: code, detail: fmt.Sprintf(format, args...), kind: croft.Invalid}
}

func notFound(format string, args ...any) *apiError {
	return &apiError{status: 404, detail: fmt.Sprintf(format, args...), kind: croft.NotFound}
}

func conflict(code, format string, args ...any) *apiError {
	return &apiError{status: 409, code: code, detail: fmt.Sprintf(format, args...), kind: croft.Conflict}
}

// tooLarge refuses a request that one transaction of the store cannot hold.
func tooLarge(size, limit int) *apiError {
	return &apiError{status: 413, kind: croft.Invalid, detail: fmt.Sprintf(
		"The request concerns %d entries of the store and one transaction can hold %d. Split it, or raise etcd's --max-txn-ops.", size, limit)}
}

// tooLong refuses a request whose entries are too many bytes for one transaction.
func tooLong(err error) *apiError {
	return &apiError{status: 413, kind: croft.Invalid, detail: "The request is too large for one transaction of the store: " +
		err.Error() + ". Split it, or raise etcd's --max-request-bytes."}
}

// What the original says of each status before the detail.
var explanations = map[int]string{
	400: "The server could not comply with the request since it is either malformed or otherwise incorrect.",
	401: "This server could not verify that you are authorized to access the document you requested. Either you supplied the wrong credentials (e.g., bad password), or your browser does not understand how to supply the credentials required.",
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

// body is an error's text, in the mark-up that the formats start from.
func (e *apiError) body(q *request) string {
	switch e.status {
	case 405:
		return fmt.Sprintf("The method %s is not allowed for this resource. <br /><br />\n%s", q.r.Method, e.detail)
	case 406:
		return fmt.Sprintf("The resource could not be generated that was acceptable to your browser\n(content of type %s. <br /><br />\n%s", q.accept, e.detail)
	case 415:
		return fmt.Sprintf("The request media type %s is not supported by this server.\n<br /><br />\n%s", cmp.Or(q.r.Header.Get("Content-Type"), "None"), e.detail)
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
		resp.body = fmt.Appendf(nil, "<html>\n <head>\n  <title>%s</title>\n </head>\n <body>\n  <h1>%s</h1>\n  %s\n </body>\n</html>",
			status, status, escaped.body(q))
	default:
		resp.contentType = "text/plain; charset=UTF-8"
		resp.body = []byte(status + "\n\n" + plain(e.body(q)))
	}
	return resp
}

// challenge is the 401 that the original has its guard, keystonemiddleware, answer: in
// JSON whatever the client prefers.
func (e *apiError) challenge(resp *response) *response {
	resp.set("WWW-Authenticate", `Keystone uri="`+e.keystone+`"`)
	resp.contentType = "application/json"
	resp.body = []byte(`{"error": {"code": 401, "title": "Unauthorized", "message": "The request you have made requires authentication."}}`)
	return resp
}

func (e *apiError) json(q *request, status string) []byte {
	if e.status == http.StatusUnauthorized { // the original answers this one before it knows better
		b := append([]byte(`{"message": `), pyjson.AppendString(nil, e.body(q)+"\n")...)
		b = append(append(b, `, "code": `...), pyjson.AppendString(nil, status)...)
		return append(b, `, "title": "Unauthorized"}`...)
	}
	b := fmt.Appendf(nil, `{"errors": [{"status": %d, "title": `, e.status)
	b = append(pyjson.AppendString(b, title(e.status)), `, "detail": `...)
	b = pyjson.AppendString(b, plain(e.body(q)))
	if q.versioned && q.version >= 23 {
		code := e.code
		if code == "" {
			code = codeUndefined
		}
		b = pyjson.AppendString(append(b, `, "code": `...), code)
	}
	b = pyjson.AppendString(append(b, `, "request_id": `...), q.id)
	if e.status == 406 && !q.versioned {
		b = fmt.Appendf(b, `, "max_version": "%s", "min_version": "%s"`, maxVersion, minVersion)
	}
	return append(b, "}]}"...)
}
