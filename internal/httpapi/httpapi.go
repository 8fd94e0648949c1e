// Package httpapi has the common parts of croft's HTTP servers: requests are read with limits, answers are JSON, and
// the status of an answer can be read afterwards.
package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"croft"
)

// ReadBody reads a request's body of at most `most` bytes, within `within` if that is not 0 and the server supports
// deadlines. Invalid.
func ReadBody(w http.ResponseWriter, r *http.Request, most int64, within time.Duration) ([]byte, error) {
	if within > 0 {
		control := http.NewResponseController(w)
		if err := control.SetReadDeadline(time.Now().Add(within)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return nil, err
		}
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, croft.Errorf(croft.Invalid, "the request is longer than %d bytes", large.Limit)
	}
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "read the request: %w", err)
	}
	return text, nil
}

// Decode decodes a JSON document into a struct. Unknown fields, and text that is not Unicode, are errors.
func Decode(text []byte, into any) error {
	if err := CheckText(text); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// Answer writes a document as JSON that must not be cached.
func Answer(w http.ResponseWriter, status int, document any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	to := &begun{w: w, status: status}
	if err := json.NewEncoder(to).Encode(document); err != nil && !to.begun { // else the client has disconnected
		to.status = http.StatusInternalServerError
		_, _ = io.WriteString(to, `{"error":"the answer cannot be said in JSON"}`+"\n") // ignore clients that disconnected
	}
}

// begun writes the status before the first byte. The encoder writes nothing before it has encoded everything.
type begun struct {
	w      http.ResponseWriter
	status int
	begun  bool
}

// Write implements io.Writer.
func (b *begun) Write(text []byte) (int, error) {
	if !b.begun {
		b.begun = true
		b.w.WriteHeader(b.status)
	}
	return b.w.Write(text)
}

// Error answers with the error's text and the status of its kind.
func Error(w http.ResponseWriter, err error) { http.Error(w, err.Error(), croft.HTTPStatus(err)) }

// StatusRecorder is a ResponseWriter that records the status of the answer.
type StatusRecorder struct {
	http.ResponseWriter

	Status int
}

// RecordStatus wraps w. The status is 200 until another is written.
func RecordStatus(w http.ResponseWriter) *StatusRecorder { return &StatusRecorder{w, http.StatusOK} }

// WriteHeader implements http.ResponseWriter.
func (n *StatusRecorder) WriteHeader(status int) {
	n.Status = status
	n.ResponseWriter.WriteHeader(status)
}

// Unwrap lets an http.ResponseController reach the connection.
func (n *StatusRecorder) Unwrap() http.ResponseWriter { return n.ResponseWriter }
