package mdserver

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"croft"
	"croft/internal/httpapi"
	"croft/internal/lazyregexp"
	"croft/internal/plain"
)

const (
	passwordFile = "password"
	maxReport    = 8 << 10 // bytes of a request body
	maxWords     = 512     // bytes of an error reported by a guest
	maxPassword  = 2 << 10 // an RSA key of 8192 bits produces half of it
)

// takeReport handles a guest's report of how its set-up ended: a form with state, which is done or failed, and error.
func (s *Server) takeReport(w http.ResponseWriter, r *http.Request, g Guest) {
	r.Body = http.MaxBytesReader(w, r.Body, maxReport)
	if err := r.ParseForm(); err != nil {
		refuse(w, http.StatusBadRequest, "a report is a form of at most 8 KiB")
		return
	}
	report := croft.CloudInit{State: croft.CloudInitState(r.PostForm.Get("state")), At: time.Now().UTC()}
	switch report.State {
	case croft.CloudInitDone:
	case croft.CloudInitFailed:
		report.Error = words(r.PostForm.Get("error"))
	default:
		refuse(w, http.StatusBadRequest, "state is done or failed")
		return
	}
	if !s.mayReport(w, g) {
		return
	}
	s.reported(w, g, s.config.Reports.CloudInit(r.Context(), g.ID, report))
}

// words makes a guest's text safe for a terminal: printable and short.
func words(text string) string {
	return strings.Join(strings.Fields(plain.Line(strings.ToValidUTF8(text[:min(len(text), maxWords)], ""))), " ")
}

func (s *Server) mayReport(w http.ResponseWriter, g Guest) bool {
	if s.recent.enter(string(g.ID)) {
		return true
	}
	w.Header().Set("Retry-After", "1")
	refuse(w, http.StatusTooManyRequests, "one report a second is enough")
	return false
}

// reported answers with the outcome of a report.
func (s *Server) reported(w http.ResponseWriter, g Guest, err error) {
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, croft.Conflict), errors.Is(err, croft.NotFound):
		refuse(w, croft.HTTPStatus(err), err.Error())
	default:
		s.config.Log.Warn("metadata: a guest's report was not kept", "instance", g.ID, "op", "report", "err", err)
		refuse(w, http.StatusServiceUnavailable, "the report cannot be kept now; send it again")
	}
}

// passwordForm is the form of an encrypted password: base64.
var passwordForm = lazyregexp.New(`^[A-Za-z0-9+/=\r\n]+$`)

// takesPassword reports whether the path is OpenStack's for passwords, in any version of its tree, and
// passwords are enabled.
func (s *Server) takesPassword(path string) bool {
	version, ok := strings.CutPrefix(strings.TrimSuffix(path, "/"+passwordFile), "/openstack/")
	return ok && s.config.Passwords && s.config.Reports != nil &&
		strings.HasSuffix(path, "/"+passwordFile) && isOpenstackVersion(version)
}

func (s *Server) takePassword(w http.ResponseWriter, r *http.Request, g Guest) {
	body, err := httpapi.ReadBody(w, r, maxPassword, 0)
	if err != nil || !passwordForm.Match(body) {
		refuse(w, http.StatusBadRequest, "a password is encrypted, in base64, and has at most 2 KiB")
		return
	}
	if s.mayReport(w, g) {
		s.reported(w, g, s.config.Reports.SetPassword(r.Context(), g.ID, strings.TrimSpace(string(body))))
	}
}

func (s *Server) givePassword(w http.ResponseWriter, r *http.Request, g Guest) {
	password, err := s.config.Reports.Password(r.Context(), g.ID)
	if err != nil {
		s.reported(w, g, err)
		return
	}
	answer(w, []byte(password), mimeText)
}
