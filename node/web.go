package node

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"croft/internal/connlimit"
	"croft/internal/endpoint"
	"croft/trust/gate"
)

// What one connection may cost a server: memory for headers, and time for what it sends.
const (
	maxHeaderBytes = 16 << 10
	headerTime     = 10 * time.Second
	idleTime       = 2 * time.Minute
	// A body has bodyTime, and a second more for each bodyRate bytes that have come.
	bodyTime = 20 * time.Second
	bodyRate = 16 << 10
	// maxStreams of a connection over HTTP/2: more than an agent has calls and streams.
	maxStreams = 64
	// What is written at once has to be read within drainTime, and silent connections over HTTP/2 are asked every
	// pingTime whether somebody is there.
	drainTime = 30 * time.Second
	pingTime  = time.Minute
)

// limited bounds the connections that a listener of this process takes.
func limited(l net.Listener) net.Listener {
	limits := connlimit.OfProcess()
	limits.WriteTime = drainTime
	tell := rate.Sometimes{Interval: time.Minute}
	limits.Dropped = func() {
		tell.Do(func() {
			slog.Warn("connections are closed in favour of new ones: there are more than this listener may have",
				"address", l.Addr().String(),
				"most", limits.Total, "most_of_one_source", limits.PerSource)
		})
	}
	return connlimit.New(l, limits)
}

// newServer answers with h. Requests' contexts end with ctx.
func newServer(ctx context.Context, h http.Handler) *http.Server {
	return &http.Server{
		Handler:           bodiesInTime(readInTime(h)),
		ReadHeaderTimeout: headerTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeaderBytes,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, SendPingTimeout: pingTime, PingTimeout: drainTime,
			WriteByteTimeout: drainTime,
		},
		ErrorLog:    slog.NewLogLogger(quietHandshakes{slog.Default().Handler()}, slog.LevelError),
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: connlimit.Context,
	}
}

// bodiesInTime ends requests that send their body too slowly. The gate has long streams and sets
// its own deadlines.
func bodiesInTime(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody && !strings.HasPrefix(r.URL.Path, gate.Prefix) {
			b := &timedBody{ReadCloser: r.Body, control: http.NewResponseController(w), began: time.Now()}
			b.extend()
			r.Body = b
		}
		next.ServeHTTP(w, r)
	})
}

// timedBody is a request's body with a deadline that moves with what has come.
type timedBody struct {
	io.ReadCloser
	control *http.ResponseController
	began   time.Time
	read    int
	ended   bool
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read += n
	switch {
	case b.ended:
	case err == nil:
		b.extend()
	case err == io.EOF: // the connection may be silent while the request is answered
		b.ended = true
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

func (b *timedBody) extend() {
	more := time.Duration(b.read) * time.Second / bodyRate
	_ = b.control.SetReadDeadline(b.began.Add(bodyTime + more)) // our servers can
}

// readInTime ends requests over HTTP/2 whose answer is not read, which holds up no connection. Over HTTP/1 the
// connection's own deadline does. The gate sets deadlines of its own.
func readInTime(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor < 2 || strings.HasPrefix(r.URL.Path, gate.Prefix) {
			next.ServeHTTP(w, r)
			return
		}
		t := &timedWriter{ResponseWriter: w, control: http.NewResponseController(w)}
		defer t.hurry() // what is left is written after this
		next.ServeHTTP(t, r)
	})
}

// timedWriter has a deadline while it writes.
type timedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
}

func (t *timedWriter) hurry() { _ = t.control.SetWriteDeadline(time.Now().Add(drainTime)) }
func (t *timedWriter) relax() { _ = t.control.SetWriteDeadline(time.Time{}) }

func (t *timedWriter) Write(p []byte) (int, error) {
	t.hurry()
	defer t.relax()
	return t.ResponseWriter.Write(p)
}

// FlushError is for http.ResponseController.
func (t *timedWriter) FlushError() error {
	t.hurry()
	defer t.relax()
	return t.control.Flush()
}

// Unwrap is for http.ResponseController.
func (t *timedWriter) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// Called refuses requests for a name that this machine does not have. A web page can have its own
// name resolve to this machine (DNS rebinding): a server on loopback that asks for no secret would
// then answer the page. Addresses cannot be redirected so,
// and over TLS the client compares the name itself.
func Called(names []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil && r.Host != "" && !isCalled(r.Host, names) { // browsers always name a host
			http.Error(w,
				fmt.Sprintf(
					"this server is not called %.253q: use its address or localhost, or add the name to server_names in compute.yaml", r.Host),
				http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isCalled tells whether the header Host names an address, localhost or one of names.
func isCalled(header string, names []string) bool {
	host := header
	if h, _, err := net.SplitHostPort(header); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || slices.Contains(names, host)
}

// CalledAt is Called for a server that listens at address. Where other machines reach it, it
// asks for a secret, and may be called anything.
func CalledAt(names []string, address string, h http.Handler) http.Handler {
	if !endpoint.IsLoopback(address) {
		return h
	}
	return Called(names, h)
}
