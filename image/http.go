package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"syscall"
	"time"

	"croft"
)

// newTransport is Go's own transport, without connections that stay open, and
// with a guard on what names resolve to.
func newTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DisableKeepAlives = true // images come one by one and hours apart
	t.DisableCompression = true
	t.DialContext = dial
	return t
}

// dial refuses names that resolve to link-local addresses, where a cloud's
// metadata servers live. Whoever means one writes the address itself.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: 30 * time.Second}
	if host, _, err := net.SplitHostPort(address); err == nil && !isAddress(host) {
		d.Control = func(_, resolved string, _ syscall.RawConn) error { return checkResolved(host, resolved) }
	}
	return d.DialContext(ctx, network, address)
}

// checkResolved judges the address and port that a name resolved to.
func checkResolved(name, resolved string) error {
	if ap, err := netip.ParseAddrPort(resolved); err == nil && linkLocal(ap.Addr()) {
		return croft.Errorf(croft.Invalid, "the name %s leads to the link-local address %s, which names may not", name, ap.Addr())
	}
	return nil
}

func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

func linkLocal(a netip.Addr) bool { return a.Unmap().IsLinkLocalUnicast() }

// client makes redirects safe: never to another kind of address, never to the
// link-local network or to this host itself from elsewhere, and, where the content is not pinned by a
// checksum from elsewhere, never from https to http.
func (c *Cache) client(pinned bool) *http.Client {
	return &http.Client{Transport: c.http, CheckRedirect: func(req *http.Request, via []*http.Request) error {
		from, to := via[0].URL, req.URL
		switch {
		case len(via) >= 10:
			return croft.Errorf(croft.Invalid, "the server redirects in circles: check the address")
		case to.Scheme != "http" && to.Scheme != "https":
			return croft.Errorf(croft.Invalid, "the server redirects to %s, and only http and https are followed", to.Redacted())
		case linkLocalHost(to) && !linkLocalHost(from):
			return croft.Errorf(croft.Invalid, "the server redirects to the link-local address %s, which is not followed", to.Host)
		case c.isThisHost(req.Context(), to) && !c.isThisHost(req.Context(), from):
			return croft.Errorf(croft.Invalid, "the server redirects to this host itself (%s), which is not followed", to.Host)
		case !pinned && from.Scheme == "https" && to.Scheme == "http":
			return croft.Errorf(croft.Invalid, "the server redirects from https to http (%s), which is followed only with a checksum: add #sha256=HEX", to.Redacted())
		}
		return nil
	}}
}

func linkLocalHost(u *url.URL) bool {
	a, err := netip.ParseAddr(u.Hostname())
	return err == nil && linkLocal(a)
}

// isThisHost reports whether an address leads to the host that asks. A name that does
// not resolve leads nowhere.
func (c *Cache) isThisHost(ctx context.Context, u *url.URL) bool {
	host := u.Hostname()
	if a, err := netip.ParseAddr(host); err == nil {
		return loopback(a)
	}
	addresses, err := c.lookup(ctx, "ip", host)
	return err == nil && slices.ContainsFunc(addresses, loopback)
}

// loopback knows the addresses too that Linux takes for its own.
func loopback(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsLoopback() || a.IsUnspecified()
}

func (c *Cache) request(ctx context.Context, address string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "the address cannot be requested: %w", err)
	}
	req.Header.Set("User-Agent", "croft")
	req.Header.Set("Accept-Encoding", "identity") // the bytes as they are, whose checksum is known
	return req, nil
}

// statusError says what an answer that brings no image means.
func statusError(resp *http.Response) error {
	answer := fmt.Sprintf("the server answers %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	switch code := resp.StatusCode; {
	case code == http.StatusNotFound || code == http.StatusGone:
		return croft.Errorf(croft.NotFound, "%s: check the address", answer)
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return croft.Errorf(croft.Invalid, "%s: it does not give this to everybody", answer)
	case code == http.StatusTooManyRequests || code == http.StatusRequestTimeout || code >= 500:
		return croft.Errorf(croft.Unavailable, "%s: try again later", answer)
	}
	return croft.Errorf(croft.Invalid, "%s, which is no answer to a download", answer)
}

// errStalled is why a watch ended its request.
var errStalled = errors.New("stalled")

// watch ends a request whose server has sent nothing for too long.
type watch struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	after  time.Duration
}

func (c *Cache) watch(ctx context.Context) (context.Context, *watch) {
	w := &watch{after: c.stall}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	w.timer = time.AfterFunc(c.stall, func() { w.cancel(errStalled) })
	return w.ctx, w
}

func (w *watch) stop() {
	w.timer.Stop()
	w.cancel(nil)
}

// reader makes every byte read put the end off.
func (w *watch) reader(r io.Reader) io.Reader { return watched{w, r} }

type watched struct {
	w *watch
	r io.Reader
}

func (r watched) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if n > 0 {
		r.w.timer.Reset(r.w.after)
	}
	return n, err
}

// explain gives an error of the network its kind and sentence. An error that has
// a kind already, such as a refused redirect, stays as it is.
func (w *watch) explain(err error) error {
	if errors.Is(context.Cause(w.ctx), errStalled) {
		return croft.Errorf(croft.Unavailable, "the server sent nothing for %s: try again later", w.after)
	}
	if w.ctx.Err() != nil {
		return w.ctx.Err()
	}
	if ue, ok := errors.AsType[*url.Error](err); ok {
		err = ue.Err
	}
	if croft.KindOf(err) != "" {
		return err
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
		return croft.Errorf(croft.Unavailable, "there is no server %s to be found: check the name and this host's network", dns.Name)
	}
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF):
		return croft.Errorf(croft.Unavailable, "the server cut the connection: try again later")
	case errors.Is(err, syscall.ECONNREFUSED):
		return croft.Errorf(croft.Unavailable, "the server refuses the connection (%w): check the address, or try again later", err)
	}
	return croft.Errorf(croft.Unavailable, "the server cannot be reached: %w", err)
}
