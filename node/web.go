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
	"croft/tenant/access"
	"croft/trust/gate"
)

// Limits of one connection: memory for headers, and time for reading requests.
const (
	maxHeaderBytes = 16 << 10
	headerTime     = 10 * time.Second
	idleTime       = 2 * time.Minute
	// A body has bodyTime, and one more second per bodyRate bytes received.
	bodyTime = 20 * time.Second
	bodyRate = 16 << 10
	// maxStreams per HTTP/2 connection: more than an agent has calls and streams.
	maxStreams = 64
	// A write must be read within drainTime; silent HTTP/2 connections get a ping every pingTime.
	drainTime = 30 * time.Second
	pingTime  = time.Minute
)

// limited limits the connections that a listener of this process accepts.
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

// newServer serves h. Contexts of requests end with ctx.
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
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return access.ConnContext(connlimit.Context(ctx, c), c)
		},
	}
}

// bodiesInTime ends requests whose body is sent too slowly. The gate has long streams and sets its own deadlines.
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

// timedBody is a request's body with a deadline that moves with the bytes received.
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
	case err == io.EOF: // the connection may be silent while the request is handled
		b.ended = true
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

func (b *timedBody) extend() {
	more := time.Duration(b.read) * time.Second / bodyRate
	_ = b.control.SetReadDeadline(b.began.Add(bodyTime + more)) // our servers support it
}

// readInTime ends HTTP/2 requests whose response is not read, which block no connection. For HTTP/1 the
// connection's own deadline does this. The gate sets its own deadlines.
func readInTime(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor < 2 || strings.HasPrefix(r.URL.Path, gate.Prefix) {
			next.ServeHTTP(w, r)
			return
		}
		t := &timedWriter{ResponseWriter: w, control: http.NewResponseController(w)}
		defer t.hurry() // the rest is written after this
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

// Called refuses requests for a name that this machine does not have. A web page can make its own name resolve to
// this machine (DNS rebinding): a server on loopback without secrets would then answer the page. Addresses cannot
// be redirected in this way, and over TLS the client checks the name itself.
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

// isCalled reports whether the header Host names an address, localhost or one of names.
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

// CalledAt is Called for a server that listens at address. If other machines reach it, it requires a secret, and
// any name is accepted.
func CalledAt(names []string, address string, h http.Handler) http.Handler {
	if !endpoint.IsLoopback(address) {
		return h
	}
	return Called(names, h)
}
