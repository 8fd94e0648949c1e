// Package egress makes the HTTP transports of all packages. There are two kinds: internal transports reach the parts of
// a cloud and never use a proxy, whatever the environment says; outward transports reach other servers through the
// proxy of the environment or of a setting.
package egress

import (
	"net"
	"net/http"
	"net/url"
	"time"

	"croft"
)

// Internal returns a transport to a part of a cloud: Placement, Keystone, hosts, managers of pools. It uses no proxy.
func Internal() *http.Transport {
	return &http.Transport{
		DialContext:           (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		ForceAttemptHTTP2:     true,
		MaxIdleConns:          100,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
	}
}

// Proxy chooses the proxy of a request; nil: none.
type Proxy func(*http.Request) (*url.URL, error)

// Outward returns a transport to servers elsewhere, such as servers of images and of OpenID Connect issuers.
func Outward(proxy Proxy) *http.Transport {
	t := Internal()
	t.Proxy = proxy
	return t
}

// Environment chooses the proxy that https_proxy, http_proxy and no_proxy name.
func Environment(r *http.Request) (*url.URL, error) { return http.ProxyFromEnvironment(r) }

// None chooses no proxy.
func None(*http.Request) (*url.URL, error) { return nil, nil }

// ParseProxy reads a setting: the URL of a proxy for all requests, none, or empty for the environment's proxy. Invalid.
func ParseProxy(setting string) (Proxy, error) {
	switch setting {
	case "":
		return Environment, nil
	case "none":
		return None, nil
	}
	u, err := url.Parse(setting)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "socks5" {
		return nil, croft.Errorf(
			croft.Invalid,
			"%q is not the URL of a proxy, such as http://proxy:3128, nor none, nor empty for that of the environment",
			setting,
		)
	}
	return http.ProxyURL(u), nil
}
