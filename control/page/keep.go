package page

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"croft"
	"croft/control/api"
	"croft/control/page/session"
)

// A form whose session has ended is kept in the page of the login. After the login the browser sends it again, with
// againField, and the page shows it as one that was refused: nothing is changed before the user sends it once more.
const (
	againField = "again"
	keptAt     = "kept-at"
	keptPrefix = "kept."
)

// mostKept bounds the fields of a form that is kept.
const mostKept = 200

// kept is a form that is kept.
type kept struct {
	At     string // the address that it was sent to
	Fields []keptField
}

type keptField struct{ Name, Value string }

// readForm reads a form of at most so many bytes. Browsers send the ends of lines as CR LF: the form has them as LF, as
// all texts of the cloud do. Invalid.
func readForm(w http.ResponseWriter, r *http.Request, most int64) error {
	if r.PostForm == nil {
		r.Body = http.MaxBytesReader(w, r.Body, most)
	}
	if err := r.ParseForm(); err != nil {
		return croft.Errorf(croft.Invalid, "the form cannot be read: %w", err)
	}
	for _, values := range []url.Values{r.PostForm, r.Form} {
		for _, of := range values {
			for n := range of {
				of[n] = withLF(of[n])
			}
		}
	}
	return nil
}

var endsOfLines = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// withLF returns a text in which all lines end with LF.
func withLF(text string) string { return endsOfLines.Replace(text) }

// keeps reports whether a form is kept: one whose user would have to fill it in again. The body of an operation that is
// tried may have secrets.
func keeps(r *http.Request) bool {
	others := []string{Root + "/logout", Root + "/theme", Root + "/choose"}
	return r.Method == http.MethodPost && !slices.Contains(others, r.URL.Path) &&
		!strings.HasPrefix(r.URL.Path, Root+"/try/")
}

// keptOf keeps the form of a request, without secrets; nil: the request has no fields to keep.
func keptOf(w http.ResponseWriter, r *http.Request) *kept {
	if !keeps(r) || readForm(w, r, mostForm) != nil {
		return nil
	}
	secrets := []string{"form", againField}
	for _, f := range forms() {
		if "POST "+Root+f.At == r.Pattern {
			secrets = append(secrets, f.secrets()...)
		}
	}
	return newKept(r.URL.RequestURI(), r.PostForm, func(name string) (string, bool) {
		return name, !slices.Contains(secrets, name)
	})
}

// keptAgain returns the form that the page of a login keeps.
func keptAgain(r *http.Request) *kept {
	at := r.PostForm.Get(keptAt)
	if at == "" || local(at) != at {
		return nil
	}
	return newKept(at, r.PostForm, func(name string) (string, bool) { return strings.CutPrefix(name, keptPrefix) })
}

// newKept keeps the fields under the names that named returns.
func newKept(at string, f url.Values, named func(string) (name string, keep bool)) *kept {
	k := &kept{At: at}
	for field, values := range f {
		name, keep := named(field)
		for _, value := range values {
			if keep {
				k.Fields = append(k.Fields, keptField{name, value})
			}
		}
	}
	if len(k.Fields) > mostKept || len(k.Fields) == 0 {
		return nil
	}
	slices.SortStableFunc(k.Fields, func(a, b keptField) int { return strings.Compare(a.Name, b.Name) })
	return k
}

// secrets returns the names of the inputs that are never shown.
func (f form) secrets() (names []string) {
	for _, in := range f.Inputs {
		if of, _, _ := operations()[f.Op].property(in.Name); of.WriteOnly || valuesOf(of).WriteOnly {
			names = append(names, in.Name)
		}
	}
	return names
}

// goOn leads a browser that has logged in to where its user wanted to go: to a view, or back to a form.
func (s *Server) goOn(w http.ResponseWriter, r *http.Request, next string, k *kept, secret session.Secret) {
	if k == nil {
		http.Redirect(w, r, next, http.StatusSeeOther)
		return
	}
	f := frame{Title: "Logged in", Theme: theme(r), Help: helpFor(r.Pattern), Form: secret.Forms(), Data: k}
	if err := s.render(w, http.StatusOK, "again", f); err != nil {
		s.fail(w, r, err)
	}
}

// fromThisPage reports whether a browser says that a page of this server sends a request.
func fromThisPage(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" {
		return site == "same-origin"
	}
	u, err := url.Parse(r.Header.Get("Origin"))
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}

// errFormer is the error of a form of a session that has ended.
var errFormer = api.NewProblem(api.ForbiddenVerb, "the session of this form has ended, and nothing was done: check the "+
	"form, and send it again")

// unchanging sends the requests that change nothing, and refuses the others.
type unchanging struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (u unchanging) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet || strings.HasPrefix(r.URL.Path, "/v1/candidates") {
		return u.next.RoundTrip(r)
	}
	if r.Body != nil {
		_ = r.Body.Close() // it is in memory
	}
	text, err := json.Marshal(errFormer)
	if err != nil {
		return nil, err
	}
	return &http.Response{Status: http.StatusText(errFormer.Status), StatusCode: errFormer.Status, Proto: "HTTP/1.1",
		ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"Content-Type": {"application/problem+json"}},
		ContentLength: int64(len(text)), Body: io.NopCloser(bytes.NewReader(text)), Request: r}, nil
}
