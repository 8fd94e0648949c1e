package placement

import (
	"cmp"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"croft/internal/lazyregexp"
)

// explanations precede the details of an error, by status, as in the original.
var explanations = map[int]string{
	400: "The server could not comply with the request since it is either malformed or otherwise incorrect.",
	401: "This server could not verify that you are authorized to access the document you requested. " +
		"Either you supplied the wrong credentials (e.g., bad password), or your browser does not understand " +
		"how to supply the credentials required.",
	403: "Access was denied to this resource.",
	404: "The resource could not be found.",
	409: "There was a conflict when trying to complete your request.",
	412: "A precondition of the request does not hold.",
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

// body returns an error's text with markup, from which respond derives each format.
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
	breaks   = lazyregexp.New(`(?i)<br.*?>`)
	comments = lazyregexp.New(`<!--|-->`)
	tags     = lazyregexp.New(`<.*?>`)
)

// plain strips markup and line ends.
func plain(text string) string {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\n", " "), "\r", "")
	text = breaks.Get().ReplaceAllString(text, "\n")
	return tags.Get().ReplaceAllString(comments.Get().ReplaceAllString(text, ""), "")
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

// challenge makes the answer the 401 of keystonemiddleware, which guards the original: JSON, whatever the client
// prefers.
func (e *apiError) challenge(resp *response) *response {
	resp.set("WWW-Authenticate", `Keystone uri="`+e.keystone+`"`)
	resp.contentType = "application/json"
	const text = "The request you have made requires authentication."
	resp.body = []byte(`{"error": {"code": 401, "title": "Unauthorized", "message": "` + text + `"}}`)
	return resp
}

func (e *apiError) json(q *request, status string) []byte {
	if e.status == http.StatusUnauthorized { // the original answers 401 in a different form
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
