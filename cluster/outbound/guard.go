package outbound

import (
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/netip"
	"syscall"
)

// forbidden are the addresses of metadata services that are not link-local.
var forbidden = []netip.Prefix{
	netip.MustParsePrefix("fd00:ec2::254/128"),
	netip.MustParsePrefix("fd20:ce::254/128"),
	netip.MustParsePrefix("100.100.100.200/32"),
	netip.MustParsePrefix("168.63.129.16/32"),
	netip.MustParsePrefix("192.0.0.192/32"),
}

// translated is the prefix of IPv4 addresses in IPv6 (RFC 6052).
var translated = netip.MustParsePrefix("64:ff9b::/96")

// Permitted reports whether an address may be called: no link-local one, where metadata services are, and no other one
// of a metadata service.
func Permitted(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if translated.Contains(a) {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	if !a.IsValid() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified() {
		return false
	}
	for _, p := range forbidden {
		if p.Contains(a) {
			return false
		}
	}
	return true
}

// permit checks the address that is about to be connected to, after names were resolved.
func permit(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !Permitted(at.Addr()) {
		return &refusedError{"is at " + address + ", which may not be called"}
	}
	return nil
}

// refusedError is an answer or an address that is not accepted; its text follows the name of the server.
type refusedError struct{ what string }

func (e *refusedError) Error() string { return e.what }

// guard bounds answers, and refuses pages for people.
type guard struct {
	next  *http.Transport
	most  int64
	pages bool
}

// CloseIdleConnections is called by http.Client.
func (g *guard) CloseIdleConnections() { g.next.CloseIdleConnections() }

// RoundTrip implements http.RoundTripper.
func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	a, err := g.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	kind, _, _ := mime.ParseMediaType(a.Header.Get("Content-Type"))
	if !g.pages && (kind == "text/html" || kind == "application/xhtml+xml") {
		_ = a.Body.Close()
		return nil, &refusedError{fmt.Sprintf("answers %s with a web page, not with data", status(a.StatusCode))}
	}
	if a.ContentLength > g.most {
		_ = a.Body.Close()
		return nil, tooLong(g.most)
	}
	a.Body = &bounded{ReadCloser: a.Body, left: g.most, most: g.most}
	return a, nil
}

func tooLong(most int64) error {
	return &refusedError{fmt.Sprintf("answers more than %d MiB, which is not read", most>>20)}
}

// status names a status code.
func status(code int) string {
	if text := http.StatusText(code); text != "" {
		return fmt.Sprintf("%d %s", code, text)
	}
	return fmt.Sprint(code)
}

// bounded fails once more was read than permitted.
type bounded struct {
	io.ReadCloser
	left, most int64
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, tooLong(b.most)
	}
	return n, err
}
