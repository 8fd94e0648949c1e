// Package outbound calls URLs that users or operators gave to the server: URLs of sites, and URLs that sites and
// clusters name. It never connects to addresses that only machines of a cloud may use, such as metadata servers,
// whatever name resolves to them. It follows redirects only within one server, and bounds time and size of responses.
package outbound

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"croft"
)

// Config configures a client.
type Config struct {
	CACert  string        // PEM, in addition to the system's certificates
	Timeout time.Duration // of a request with its response; 30 s by default. Negative: only its context limits it
	MaxBody int64         // of a response, in bytes; 16 MiB by default
}

const (
	connectTimeout = 10 * time.Second
	maxRedirects   = 5
	maxURL         = 2 << 10
)

// Client returns a client. Invalid: the certificates cannot be parsed.
func Client(c Config) (*http.Client, error) {
	roots, err := authorities(c.CACert)
	if err != nil {
		return nil, err
	}
	timeout := cmp.Or(c.Timeout, 30*time.Second)
	transport := &http.Transport{ // without a proxy, which could connect to forbidden addresses
		DialContext: (&net.Dialer{Timeout: connectTimeout, Control: control}).DialContext, ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, TLSHandshakeTimeout: connectTimeout,
		MaxIdleConnsPerHost: 4, IdleConnTimeout: 30 * time.Second, MaxResponseHeaderBytes: 64 << 10,
		ResponseHeaderTimeout: max(timeout, 0),
	}
	return &http.Client{Transport: bounded{transport, cmp.Or(c.MaxBody, 16<<20)}, CheckRedirect: redirect,
		Timeout: max(timeout, 0)}, nil
}

// authorities returns the certificates of the system and in text; nil: only the system's.
func authorities(text string) (*x509.CertPool, error) {
	if text == "" {
		return nil, nil
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if !roots.AppendCertsFromPEM([]byte(text)) {
		return nil, croft.Errorf(croft.Invalid, "these are no certificates in PEM")
	}
	return roots, nil
}

// CheckCA validates certificates. Invalid.
func CheckCA(text string) error {
	_, err := authorities(text)
	return err
}

// redirect permits redirects within one server, and not from HTTPS to HTTP.
func redirect(next *http.Request, before []*http.Request) error {
	first := before[0].URL
	if next.URL.Scheme != first.Scheme || !strings.EqualFold(next.URL.Host, first.Host) {
		return croft.Errorf(croft.Unavailable, "%s redirects to another server, which is not followed", first.Host)
	}
	if len(before) > maxRedirects {
		return croft.Errorf(croft.Unavailable, "%s redirects for ever", first.Host)
	}
	return nil
}

// bounded limits the size of responses.
type bounded struct {
	http.RoundTripper
	most int64
}

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		answer.Body = &body{ReadCloser: answer.Body, left: b.most, host: r.URL.Host}
	}
	return answer, err
}

// CloseIdleConnections closes idle connections.
func (b bounded) CloseIdleConnections() {
	if t, is := b.RoundTripper.(*http.Transport); is {
		t.CloseIdleConnections()
	}
}

type body struct {
	io.ReadCloser
	left int64
	host string
}

// Read implements io.Reader. Unavailable: the response exceeds the limit.
func (b *body) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if int64(n) > b.left {
		n = int(b.left)
		err = croft.Errorf(croft.Unavailable, "the answer of %s is longer than it may be", b.host)
	}
	b.left -= int64(n)
	return n, err
}

// control rejects forbidden addresses after name resolution.
func control(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", address, err)
	}
	return CheckAddress(at.Addr())
}

var (
	// metadata are the addresses of metadata servers that are not link-local.
	metadata = []netip.Addr{netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("fd20:ce::254"),
		netip.MustParseAddr("100.100.100.200"), netip.MustParseAddr("168.63.129.16"),
		netip.MustParseAddr("192.0.0.192")}
	nat64 = netip.MustParsePrefix("64:ff9b::/96")
)

// CheckAddress rejects addresses that the server must not call on behalf of others: link-local ones, such as metadata
// servers, multicast ones and the unspecified address. Invalid.
func CheckAddress(a netip.Addr) error {
	a = a.Unmap().WithZone("")
	if nat64.Contains(a) {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	switch {
	case a.IsLinkLocalUnicast(), slices.Contains(metadata, a):
		return croft.Errorf(croft.Invalid, "%s is link-local or the address of a metadata server, which croft never "+
			"calls",
			a)
	case a.IsMulticast(), a.IsUnspecified(), !a.IsValid():
		return croft.Errorf(croft.Invalid, "%s is no address of a server", a)
	}
	return nil
}

// CheckURL validates a URL; errors name its purpose, the argument what. The addresses of host names are checked at each
// call. Invalid.
func CheckURL(what, text string) error {
	bad := func(why string) error { return croft.Errorf(croft.Invalid, "the URL of %s %s", what, why) }
	u, err := url.Parse(text)
	switch {
	case err != nil || len(text) > maxURL: // err is not shown, because it contains the URL
		return bad("is none")
	case u.User != nil:
		return bad("contains a user name or a password: remove them, because URLs are shown to other users")
	case u.Scheme != "http" && u.Scheme != "https" || u.Opaque != "" || u.Hostname() == "":
		return bad("must start with http:// or https:// and a host")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return bad("may have neither ? nor #")
	}
	if a, err := netip.ParseAddr(strings.TrimSuffix(u.Hostname(), ".")); err == nil {
		if err := CheckAddress(a); err != nil {
			return croft.Errorf(croft.Invalid, "the URL of %s: %w", what, err)
		}
	}
	return nil
}
