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
	"croft/cluster/outbound"
	"croft/internal/egress"
	"croft/internal/redact"
)

// route follows one request through its redirects. It is stored in the request's context.
type route struct {
	mu         sync.Mutex
	from       zone // zone of the reference; empty: a proxy resolves names
	public     bool // only addresses that client.public permits are connected to
	redirected bool
	proxied    bool
}

// publicKey marks the context of a fetch for a public reference.
type publicKey struct{}

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

// beyond reports whether an address must not be connected to after a redirect, and its zone.
func (r *route) beyond(c *client, a netip.Addr) (zone, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.redirected || r.proxied || r.from == noAddress {
		return noAddress, false
	}
	to := c.zone(a)
	return to, !c.follows(r.from, to, a)
}

// follows reports whether a redirect from one zone to an address in another is followed.
func (c *client) follows(from, to zone, a netip.Addr) bool {
	allowed := func(p netip.Prefix) bool { return p.Contains(a.Unmap()) }
	return to == internet || to == from || slices.ContainsFunc(c.redirects, allowed)
}

// client makes requests and refuses unsafe destinations.
type client struct {
	transport http.RoundTripper
	stall     time.Duration  // timeout without data from the server
	redirects []netip.Prefix // networks of this host to which redirects may lead
	public    outbound.Rule  // of addresses for public references
	zone      func(netip.Addr) zone
	lookup    func(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// newTransport returns an outward transport without keep-alive connections, with checks of resolved names and redirect
// targets. nil proxy: the proxy of the environment.
func (c *client) newTransport(proxy egress.Proxy) *http.Transport {
	if proxy == nil {
		proxy = egress.Environment
	}
	t := egress.Outward(nil)
	t.DisableKeepAlives = true // downloads are sequential and hours apart
	t.DisableCompression = true
	t.DialContext = c.dial
	t.Proxy = func(req *http.Request) (*url.URL, error) {
		u, err := proxy(req)
		r := routeOf(req.Context())
		r.set(func() { r.proxied = u != nil })
		return u, err
	}
	return t
}

// dial checks the resolved address right before it connects, so that a second DNS lookup cannot bypass the check. It
// refuses names that resolve to link-local addresses, where cloud metadata servers live; to use one, write the address
// itself.
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
		return c.permits(r, host, ap.Addr())
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

// permits rejects an address for a public reference. Addresses that a proxy connects to are checked before.
func (c *client) permits(r *route, host string, a netip.Addr) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.public || r.proxied {
		return nil
	}
	return c.checkAddress(host, a)
}

func (c *client) checkAddress(host string, a netip.Addr) error {
	if err := c.public.Check(a); err != nil {
		return croft.Errorf(croft.Invalid, "the server %s: %w", host, err)
	}
	return nil
}

// checkPublic looks up the server of a URL in a public reference, and rejects it if one of its addresses is not
// permitted. Unavailable: this host finds no address for the name.
func (c *client) checkPublic(ctx context.Context, address string) error {
	u, err := url.Parse(address)
	if err != nil {
		return croft.Errorf(croft.Invalid, "the address cannot be requested: %w", err)
	}
	all, err := c.resolve(ctx, u.Hostname())
	if err != nil {
		return croft.Errorf(croft.Unavailable, "the server %s: look up its addresses, which an address from a tenant "+
			"requires: %w; an operator can list the server in cloud_api.image_sources", u.Hostname(), err)
	}
	for _, a := range all {
		if err := c.checkAddress(u.Hostname(), a); err != nil {
			return err
		}
	}
	return nil
}

// checkResolved checks the address and port to which a name resolved.
func checkResolved(name, resolved string) error {
	if ap, err := netip.ParseAddrPort(resolved); err == nil && ap.Addr().Unmap().IsLinkLocalUnicast() {
		return croft.Errorf(croft.Invalid, "the name %s resolves to the link-local address %s, which is not allowed for a name", name,
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

// do makes a request and follows only safe redirects: never to another kind of address, never from elsewhere
// to this host or its networks, and never from https to http unless an independent checksum pins the content.
func (c *client) do(req *http.Request, pinned bool) (*http.Response, error) {
	r := &route{public: req.Context().Value(publicKey{}) != nil}
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
			redact.URL(to))
	case !pinned && from.Scheme == "https" && to.Scheme == "http":
		return croft.Errorf(croft.Invalid,
			"the server redirects from https to http (%s), which is followed only with a checksum: add #sha256=HEX",
			redact.URL(to))
	}
	if routeOf(req.Context()).public {
		if err := c.checkPublic(req.Context(), to.String()); err != nil {
			return err
		}
	}
	return c.checkNames(req.Context(), from, to)
}

// checkNames checks a redirect before connecting, by all addresses to which the names resolve now: with a
// proxy, the proxy makes the connection.
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

// farthest returns the zone of all the addresses, or the internet if they differ: the owner of the name may have chosen
// among them.
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

// addresses returns the addresses of a URL's server; none if the name does not resolve.
func (c *client) addresses(ctx context.Context, u *url.URL) []netip.Addr {
	addresses, err := c.resolve(ctx, u.Hostname())
	if err != nil {
		return nil
	}
	return addresses
}

func (c *client) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	return c.lookup(ctx, "ip", host)
}

func (c *client) request(ctx context.Context, address string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "the address cannot be requested: %w", err)
	}
	req.Header.Set("User-Agent", "croft")
	req.Header.Set("Accept-Encoding", "identity") // unmodified bytes, whose checksum is known
	return req, nil
}

// zone classifies an address as seen from this host. A redirect may lead to the internet or within the zone of the
// reference: only the author of the reference, not a server, may choose to fetch from a host's own network.
type zone string

const (
	internet  zone = "the internet"
	ownLAN    zone = "this host's own network"
	nearLink  zone = "the link-local address"
	itself    zone = "this host itself"
	noAddress zone = ""
)

// special are the ranges outside the internet that netip does not know.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("fec0::/10"),
}

// zoneOf takes the networks of this host's own addresses as own.
func zoneOf(a netip.Addr, own []netip.Prefix) zone {
	a = embedded(a.Unmap()).WithZone("")
	within := func(p netip.Prefix) bool { return p.Contains(a) }
	switch {
	case a.IsLoopback() || a.IsUnspecified():
		return itself
	case slices.ContainsFunc(own, func(p netip.Prefix) bool { return p.Addr() == a }):
		return itself
	case a.IsLinkLocalUnicast():
		return nearLink
	case a.IsPrivate() || a.IsMulticast() || slices.ContainsFunc(special, within) || slices.ContainsFunc(own, within):
		return ownLAN
	}
	return internet
}

// embedded returns the IPv4 address in a NAT64 or 6to4 address.
func embedded(a netip.Addr) netip.Addr {
	b := a.As16()
	switch {
	case netip.MustParsePrefix("64:ff9b::/96").Contains(a):
		return netip.AddrFrom4([4]byte(b[12:]))
	case netip.MustParsePrefix("2002::/16").Contains(a):
		return netip.AddrFrom4([4]byte(b[2:6]))
	}
	return a
}

// ownAddresses returns this host's addresses, each with its network.
func ownAddresses() []netip.Prefix {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil // loopback and private networks are known anyway
	}
	var own []netip.Prefix
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			own = append(own, p)
		}
	}
	return own
}

// ParseNetworks parses networks, or single addresses.
func ParseNetworks(texts []string) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if a, err2 := netip.ParseAddr(text); err2 == nil {
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		if err != nil {
			return nil, croft.Errorf(croft.Invalid, "%q is neither a network such as 10.0.0.0/8 nor an address", text)
		}
		all = append(all, p.Masked())
	}
	return all, nil
}
