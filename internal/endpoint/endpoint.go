// Package endpoint determines who can reach an address, only this machine or others too, and which address they should
// use.
package endpoint

import (
	"bytes"
	"crypto/rand"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// OwnAddresses returns this host's addresses that other machines can use.
func OwnAddresses() []string {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil // only shown to users
	}
	var all []string
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err == nil && p.Addr().IsGlobalUnicast() {
			all = append(all, p.Addr().String())
		}
	}
	return all
}

// Elsewhere returns a function that reports whether an address from a host can belong to a guest: it is no loopback,
// link-local or multicast address, and none of this machine, whose addresses are read once.
func Elsewhere() func(address string) bool {
	own := OwnAddresses()
	return func(address string) bool {
		ip, err := netip.ParseAddr(address)
		return err == nil && ip.Unmap().IsGlobalUnicast() && !slices.Contains(own, ip.Unmap().String())
	}
}

// IsTLS reports whether a URL uses TLS.
func IsTLS(url string) bool { return strings.HasPrefix(url, "https://") }

// IsLoopback reports whether host:port can be reached only from this machine.
func IsLoopback(address string) bool {
	name, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(name)
	return name == "localhost" || err == nil && ip.IsLoopback()
}

// OwnName returns a random name that browsers resolve to 127.0.0.1. Browsers send a cookie to every port of a name, so
// pages at other ports get a cookie only if they know the name.
func OwnName() string { return "croft-" + strings.ToLower(rand.Text()) + ".localhost" }

// Outside replaces a wildcard address by one of this machine's addresses.
func Outside(address string) string {
	ap, err := netip.ParseAddrPort(address)
	own := OwnAddresses()
	if err != nil || !ap.Addr().IsUnspecified() || len(own) == 0 {
		return address
	}
	return net.JoinHostPort(own[0], strconv.Itoa(int(ap.Port())))
}

// AnyLoopback reports whether one of the URLs cannot be reached from another machine.
func AnyLoopback(endpoints []string) bool {
	for _, endpoint := range endpoints {
		if u, err := url.Parse(endpoint); err != nil || IsLoopback(net.JoinHostPort(u.Hostname(), "0")) {
			return true
		}
	}
	return false
}

// Outward is like Outside, for a URL.
func Outward(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return endpoint
	}
	u.Host = Outside(u.Host)
	return u.String()
}

// IsWrongScheme reports whether a body is the answer, with status 400, of Go's servers to a request without TLS where
// TLS is expected.
func IsWrongScheme(body []byte) bool {
	return bytes.Contains(body, []byte("HTTP request to an HTTPS server"))
}
