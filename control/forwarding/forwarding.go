// Package forwarding sends requests for other clouds to them, and streams their answers back. It checks the headers of
// an answer before it passes anything on, and refuses answers that no cloud would give.
package forwarding

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	"croft"
	"croft/control/actions"
	"croft/control/api"
	"croft/control/federation"
	"croft/control/federation/assertion"
	"croft/control/pace"
)

// Peers are the other clouds to which requests with the header assertion.Header are forwarded.
type Peers struct {
	Home croft.PartitionID
	// Find finds a peer by its UUID or its alias, in memory if possible. NotFound, Unavailable.
	Find func(ctx context.Context, idOrAlias string) (federation.Partition, error)
	// Sign fills in the times and the nonce of an assertion, and signs it.
	Sign func(assertion.Assertion) (assertion.Signed, error)
}

// Limits of forwarding.
const (
	mostForwarded = 256              // concurrent, to all peers; and as many streams
	mostOfProject = 32               // of those, for one project of this cloud
	newcomers     = 64               // of those, reserved for projects that have none yet
	maxForwarded  = 16 << 20         // bytes of an answer that is no stream
	forwardTime   = 45 * time.Second // until the answer starts, without the time that a request itself waits
)

// Forwarding sends requests to peers. A nil *Forwarding knows none.
type Forwarding struct {
	Peers
	log *slog.Logger

	mu         sync.Mutex
	requests   *pace.Shares
	streams    *pace.Shares
	transports map[string]*http.Transport // by endpoint and authorities
}

// New returns a Forwarding to these peers; nil: there are no peers.
func New(p *Peers, log *slog.Logger) *Forwarding {
	if p == nil {
		return nil
	}
	return &Forwarding{Peers: *p, log: log, requests: shares(), streams: shares(),
		transports: map[string]*http.Transport{}}
}

// Outgoing is a request in the form in which a peer receives it.
type Outgoing struct {
	Peer   federation.Partition
	To     *url.URL
	Header http.Header
	Body   []byte
	Waits  time.Duration       // the time that the request itself waits
	Tell   func(result string) // called once the result is known
}

// Send sends a request and streams the answer back.
func (f *Forwarding) Send(w http.ResponseWriter, r *http.Request, out *Outgoing) (failed error) {
	p := out.Peer
	transport, err := f.transport(p)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	patience := time.AfterFunc(forwardTime+out.Waits, func() { cancel(errSilent) })
	defer patience.Stop()
	proxy := &httputil.ReverseProxy{
		Transport: noTrailers{transport}, FlushInterval: -1,
		ErrorLog: slog.NewLogLogger(f.log.Handler(), slog.LevelDebug),
		Rewrite: func(r *httputil.ProxyRequest) {
			upgrade, sockets := out.Header.Get("Upgrade") != "", r.Out.Header
			r.Out.URL, r.Out.Host, r.Out.Header = out.To, out.To.Host, out.Header
			if upgrade {
				r.Out.Header.Set("Connection", "Upgrade")
				for _, name := range []string{"Sec-Websocket-Key", "Sec-Websocket-Version",
					"Sec-Websocket-Extensions"} {
					r.Out.Header[name] = sockets[name]
				}
			}
			r.Out.Body, r.Out.ContentLength = io.NopCloser(bytes.NewReader(out.Body)), int64(len(out.Body))
			if len(out.Body) == 0 {
				r.Out.Body = http.NoBody
			}
		},
		ModifyResponse: func(a *http.Response) error {
			if err := admit(a, out.Tell); err != nil {
				return err
			}
			patience.Stop()
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) {
			if cause := context.Cause(ctx); errors.Is(cause, errSilent) {
				err = cause
			}
			failed = f.problem(p, err)
		},
	}
	proxy.ServeHTTP(final{w}, r.WithContext(ctx))
	return failed
}

// final drops informational answers, whose headers would be the peer's, and passes on the final one.
type final struct{ http.ResponseWriter }

func (w final) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w final) WriteHeader(code int) {
	if code >= 200 || code == http.StatusSwitchingProtocols {
		w.ResponseWriter.WriteHeader(code)
	}
}

// noTrailers removes the headers that a peer sends after the body.
type noTrailers struct{ http.RoundTripper }

func (t noTrailers) RoundTrip(r *http.Request) (*http.Response, error) {
	a, err := t.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	without := *a // the body sets the trailers of the answer it came with
	without.Trailer = nil
	return &without, nil
}

// errSilent is the cause when the wait for a peer's answer times out.
var errSilent = errors.New("it does not answer in time")

// Turn starts forwarding a request of a project; end ends it. Streams, which may last for hours, have a limit separate
// from that of requests. False: the project, or all together, have reached the limit.
func (f *Forwarding) Turn(project croft.Project, stream bool) (end func(), ok bool) {
	if stream {
		return f.streams.Begin(project)
	}
	return f.requests.Begin(project)
}

func shares() *pace.Shares {
	return &pace.Shares{Each: mostOfProject, All: mostForwarded, Newcomers: newcomers}
}

// transport returns a transport to a peer, over HTTP/1, which supports upgrades.
func (f *Forwarding) transport(p federation.Partition) (*http.Transport, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := p.Peer.Endpoint + " " + p.Peer.CA
	if t := f.transports[key]; t != nil {
		return t, nil
	}
	roots, err := p.Peer.Roots()
	if err != nil {
		return nil, err
	}
	if len(f.transports) >= 64 { // stale endpoints
		f.closeIdle()
		clear(f.transports)
	}
	dialer := &net.Dialer{Timeout: 10 * time.Second, Control: onlyReachable}
	f.transports[key] = &http.Transport{DialContext: dialer.DialContext, DisableCompression: true,
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
		TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: 30 * time.Second, MaxIdleConnsPerHost: 16,
		MaxResponseHeaderBytes: 64 << 10, ForceAttemptHTTP2: false}
	return f.transports[key], nil
}

// onlyReachable refuses addresses that no peer has, such as a metadata server's, regardless of the name that resolves
// to them.
func onlyReachable(_, address string, _ syscall.RawConn) error {
	if at, err := netip.ParseAddrPort(address); err != nil || !federation.Reachable(at.Addr()) {
		return errUnreachable
	}
	return nil
}

var errUnreachable = errors.New("its name leads to an address that no cloud has")

// closeIdle closes unused connections.
func (f *Forwarding) closeIdle() {
	for _, t := range f.transports {
		t.CloseIdleConnections()
	}
}

// Close ends idle connections.
func (f *Forwarding) Close() {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closeIdle()
}

// An oddity is an answer that no cloud would give.
type oddity struct{ why string }

func (o oddity) Error() string { return o.why }

// passed are the headers of an answer that are passed on to the client.
var passed = []string{"Content-Type", "Etag", "Retry-After", "Cache-Control", "Upgrade", "Connection",
	"Sec-Websocket-Accept", "Sec-Websocket-Protocol", "Sec-Websocket-Extensions"}

// admit checks an answer before anything of it is passed on, and reports its result to the action log.
func admit(a *http.Response, tell func(result string)) error {
	kind, _, _ := mime.ParseMediaType(a.Header.Get("Content-Type"))
	switch {
	case a.StatusCode == http.StatusSwitchingProtocols:
	case a.StatusCode >= 300 && a.StatusCode < 400:
		return oddity{fmt.Sprintf("it redirects (%d), which is not followed", a.StatusCode)}
	case a.StatusCode == http.StatusNoContent:
	case kind == "text/event-stream", kind == "application/octet-stream":
		if a.StatusCode != http.StatusOK {
			return oddity{fmt.Sprintf("it answers %d with a stream", a.StatusCode)}
		}
	case kind == "application/json", kind == "application/problem+json":
		text, err := io.ReadAll(io.LimitReader(a.Body, maxForwarded+1))
		if err != nil {
			return err
		}
		if len(text) > maxForwarded {
			return oddity{fmt.Sprintf("its answer is longer than %d MiB", maxForwarded>>20)}
		}
		if !json.Valid(text) {
			return oddity{"its answer is no JSON"}
		}
		_ = a.Body.Close()
		a.Body, a.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
		if a.StatusCode >= http.StatusBadRequest {
			return refused(a, text, tell)
		}
	default:
		return oddity{fmt.Sprintf("it answers %d as %.40q, as no cloud does", a.StatusCode, kind)}
	}
	keep(a)
	tell(actions.Done)
	return nil
}

// refused passes on a problem. If the peer rejects the assertion, the error is not the caller's, so it gets another
// code.
func refused(a *http.Response, text []byte, tell func(result string)) error {
	var told api.Problem
	if err := json.Unmarshal(text, &told); err != nil || told.Code.Status() == 0 {
		return oddity{fmt.Sprintf("it answers %d without a code that this version knows", a.StatusCode)}
	}
	if a.StatusCode == http.StatusUnauthorized {
		return oddity{"it refuses this cloud, in its own words: " + printable(told.Detail)}
	}
	keep(a)
	tell(string(told.Code))
	return nil
}

// keep removes the headers that are not passed on.
func keep(a *http.Response) {
	kept := http.Header{}
	for _, name := range passed {
		if v := a.Header.Values(name); len(v) > 0 {
			kept[name] = v
		}
	}
	a.Header = kept
}

// problem returns the error for a peer that cannot answer. Only operators learn its address, from the log.
func (f *Forwarding) problem(p federation.Partition, err error) error {
	f.log.Warn("a request could not be forwarded", "peer", p.Alias, "endpoint", p.Peer.Endpoint, "err", err)
	why := "it does not answer"
	if odd, is := errors.AsType[oddity](err); is {
		why = odd.why
	}
	if _, is := errors.AsType[*tls.CertificateVerificationError](err); is {
		why = "this cloud does not trust the certificate that it shows: its operators give those of this cloud a " +
			"new card"
	}
	for _, known := range []error{errSilent, errUnreachable} {
		if errors.Is(err, known) {
			why = known.Error()
		}
	}
	return api.NewProblem(api.BackendDown, "the cloud "+p.Alias+" cannot be asked: "+why)
}

// longestTold is the maximum length of a peer's text that is passed on.
const longestTold = 400

// printable shortens a text from a peer, and removes characters that do not print.
func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if runes := []rune(text); len(runes) > longestTold {
		return string(runes[:longestTold]) + "..."
	}
	return text
}
