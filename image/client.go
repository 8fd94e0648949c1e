package image

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"syscall"
	"time"

	"croft"
)

// route follows one request through its redirects. It is in the request's context.
type route struct {
	mu         sync.Mutex
	from       zone // that the reference led to; empty where a proxy resolves names
	redirected bool
	proxied    bool
}

type routeKey struct{}

func routeOf(ctx context.Context) *route {
	if r, ok := ctx.Value(routeKey{}).(*route); ok {
		return r
	}
	return &route{}
}

func (r *route) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

func (r *route) start() zone {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.from
}

// beyond reports whether an address may not be connected to, since a redirect led
// there, and where it is.
func (r *route) beyond(c *client, a netip.Addr) (zone, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.redirected || r.proxied || r.from == noAddress {
		return noAddress, false
	}
	to := c.zone(a)
	return to, !c.follows(r.from, to, a)
}

// follows reports whether a redirect from one zone to an address in another is
// followed.
func (c *client) follows(from, to zone, a netip.Addr) bool {
	allowed := func(p netip.Prefix) bool { return p.Contains(a.Unmap()) }
	return to == internet || to == from || slices.ContainsFunc(c.redirects, allowed)
}

// client makes requests that lead nowhere they should not.
type client struct {
	transport http.RoundTripper
	stall     time.Duration  // how long a server may send nothing
	redirects []netip.Prefix // networks of this host that redirects may lead into
	zone      func(netip.Addr) zone
	lookup    func(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// newTransport is Go's own transport, without connections that stay open, and
// with a guard on what names resolve to and redirects lead to.
func (c *client) newTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DisableKeepAlives = true // images come one by one and hours apart
	t.DisableCompression = true
	t.DialContext = c.dial
	proxy := t.Proxy
	t.Proxy = func(req *http.Request) (*url.URL, error) {
		u, err := proxy(req)
		r := routeOf(req.Context())
		r.set(func() { r.proxied = u != nil })
		return u, err
	}
	return t
}

// dial judges the address itself that it is about to connect to, so that no name can
// mean one when it is looked at and another afterwards. It refuses names that resolve
// to link-local addresses, where a cloud's metadata servers live: whoever means one
// writes the address itself.
func (c *client) dial(ctx context.Context, network, address string) (net.Conn, error) {
	r := routeOf(ctx)
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	d := net.Dialer{Timeout: 30 * time.Second, Control: func(_, resolved string, _ syscall.RawConn) error {
		if !isAddress(host) {
			if err := checkResolved(host, resolved); err != nil {
				return err
			}
		}
		ap, err := netip.ParseAddrPort(resolved)
		if err != nil {
			return err
		}
		if to, refused := r.beyond(c, ap.Addr()); refused {
			return notFollowed(to, resolved)
		}
		return nil
	}}
	conn, err := d.DialContext(ctx, network, address)
	if err == nil {
		if ap, err := netip.ParseAddrPort(conn.RemoteAddr().String()); err == nil {
			r.set(func() {
				if !r.redirected && !r.proxied {
					r.from = c.zone(ap.Addr())
				}
			})
		}
	}
	return conn, err
}

// checkResolved judges the address and port that a name resolved to.
func checkResolved(name, resolved string) error {
	if ap, err := netip.ParseAddrPort(resolved); err == nil && ap.Addr().Unmap().IsLinkLocalUnicast() {
		return croft.Errorf(croft.Invalid, "the name %s leads to the link-local address %s, which names may not", name,
			ap.Addr())
	}
	return nil
}

func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

func notFollowed(to zone, where string) error {
	return croft.Errorf(croft.Invalid, "the server redirects to %s (%s), which is not followed: "+
		"give the address that it leads to, or name the network in the host's setting images.allow_redirects", to,
		where)
}

// do makes a request whose redirects are safe: never to another kind of address, never
// to this host or its networks from elsewhere, and, where the content is not pinned by
// a checksum from elsewhere, never from https to http.
func (c *client) do(req *http.Request, pinned bool) (*http.Response, error) {
	r := &route{}
	client := &http.Client{Transport: c.transport, CheckRedirect: func(req *http.Request, via []*http.Request) error {
		r.set(func() { r.redirected = true })
		return c.checkRedirect(req, via, pinned)
	}}
	return client.Do(req.WithContext(context.WithValue(req.Context(), routeKey{}, r)))
}

func (c *client) checkRedirect(req *http.Request, via []*http.Request, pinned bool) error {
	from, to := via[0].URL, req.URL
	switch {
	case len(via) >= 10:
		return croft.Errorf(croft.Invalid, "the server redirects in circles: check the address")
	case to.Scheme != "http" && to.Scheme != "https":
		return croft.Errorf(croft.Invalid, "the server redirects to %s, and only http and https are followed",
			to.Redacted())
	case !pinned && from.Scheme == "https" && to.Scheme == "http":
		return croft.Errorf(croft.Invalid,
			"the server redirects from https to http (%s), which is followed only with a checksum: add #sha256=HEX",
			to.Redacted())
	}
	return c.checkNames(req.Context(), from, to)
}

// checkNames judges a redirect before anybody is connected to, as a proxy will do that
// in our place: by all addresses that the names have now.
func (c *client) checkNames(ctx context.Context, from, to *url.URL) error {
	start := routeOf(ctx).start()
	if start == noAddress {
		start = c.farthest(c.addresses(ctx, from))
	}
	for _, a := range c.addresses(ctx, to) {
		if near := c.zone(a); !c.follows(start, near, a) {
			return notFollowed(near, to.Host)
		}
	}
	return nil
}

// farthest is the zone that all the addresses are in, or else the internet: where one
// name has several, whoever named it may have chosen.
func (c *client) farthest(addresses []netip.Addr) zone {
	all := noAddress
	for _, a := range addresses {
		near := c.zone(a)
		if all != noAddress && all != near {
			return internet
		}
		all = near
	}
	return all
}

// addresses are those of a URL's server. A name that does not resolve has none.
func (c *client) addresses(ctx context.Context, u *url.URL) []netip.Addr {
	host := u.Hostname()
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}
	}
	addresses, err := c.lookup(ctx, "ip", host)
	if err != nil {
		return nil
	}
	return addresses
}

func (c *client) request(ctx context.Context, address string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "the address cannot be requested: %w", err)
	}
	req.Header.Set("User-Agent", "croft")
	req.Header.Set("Accept-Encoding", "identity") // the bytes as they are, whose checksum is known
	return req, nil
}
