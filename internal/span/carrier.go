package span

import (
	"net/http"
	"sync"

	"go.opentelemetry.io/otel/trace"
)

// Carrier passes spans from an HTTP client to a server in the same process: the spans that the server starts are below
// the client's.
type Carrier struct{ spans sync.Map } // by traceparent

// header is the W3C header of the parent of a request.
const header = "Traceparent"

// Client returns the transport of the client.
func (c *Carrier) Client(next *http.Transport) http.RoundTripper { return carrying{next, c} }

type carrying struct {
	*http.Transport

	carrier *Carrier
}

// RoundTrip implements http.RoundTripper.
func (t carrying) RoundTrip(r *http.Request) (*http.Response, error) {
	if s := trace.SpanFromContext(r.Context()); s.IsRecording() {
		parent := Parent(r.Context())
		t.carrier.spans.Store(parent, s)
		r = r.Clone(r.Context())
		r.Header.Set(header, parent)
	}
	return t.Transport.RoundTrip(r)
}

// Server returns the handler of the server.
func (c *Carrier) Server(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s, known := c.spans.Load(r.Header.Get(header)); known {
			r = r.WithContext(trace.ContextWithSpan(r.Context(), s.(trace.Span)))
		}
		next.ServeHTTP(w, r)
	})
}
