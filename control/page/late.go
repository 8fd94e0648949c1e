package page

import (
	"bytes"
	"net/http"
)

// late is what a page shows once slow operations have answered. The head of the page is sent before them.
type late struct {
	v    *visit
	page *bytes.Buffer // what is written and not sent
	load func() (any, error)
	// The operations have answered, and the page is sent as a whole.
	ready bool
}

// Asked returns a part of the address.
func (l late) Asked(part string) string { return l.v.r.URL.Query().Get(part) }

// loaded is the outcome: what the page shows, or why it cannot be shown.
type loaded struct {
	Shown any
	refusal
}

// Load sends what was written so far, and waits for the operations.
func (l late) Load() loaded {
	if !l.ready {
		l.send()
		_ = http.NewResponseController(l.v.w).Flush() // writers that cannot are complete later
	}
	shown, err := l.load()
	if err == nil {
		return loaded{Shown: shown}
	}
	l.v.log.Warn("a part of a page cannot be shown", "path", l.v.r.URL.Path, "err", err)
	return loaded{refusal: l.v.refusalOf(err)}
}

// send sends the written part.
func (l late) send() {
	_, _ = l.v.w.Write(visible(l.page.Bytes())) // ignore browsers that disconnected
	l.page.Reset()
}

// showLate answers with a page of operators whose operations may take longer than a reader likes to wait. For others
// the API decides first, so that the answer has the right status.
func (v *visit) showLate(name, title string, load func() (any, error)) error {
	if !v.caller.Operator() {
		shown, err := load()
		if err != nil {
			return err
		}
		load = func() (any, error) { return shown, nil }
	}
	l := late{v, &bytes.Buffer{}, load, false}
	f := v.frame(title, l)
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	v.w.WriteHeader(http.StatusOK)
	if err := pages[name].Execute(l.page, f); err != nil { // its status is sent already
		v.log.Warn("a page is incomplete", "path", v.r.URL.Path, "err", err)
	}
	l.send()
	return nil
}
