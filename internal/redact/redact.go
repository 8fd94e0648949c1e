// Package redact removes secrets from addresses, so that they can be shown to users who may not use them.
package redact

import (
	"net/url"
	"strings"
)

// URL returns an address without user, password, query and fragment: a signature in the query can be used like a
// password.
func URL(u *url.URL) string {
	shown := *u
	shown.User, shown.RawQuery, shown.ForceQuery, shown.Fragment, shown.RawFragment = nil, "", false, "", ""
	return shown.String()
}

// Image returns the reference of an image without the secrets of its addresses. The checksum is kept.
func Image(reference string) string {
	if strings.HasPrefix(reference, "/") {
		return reference // a path on the host
	}
	address, fragment, verified := strings.Cut(reference, "#")
	shown := Address(address)
	if !verified {
		return shown
	}
	checks := strings.Split(fragment, "&")
	for i, check := range checks {
		if key, value, ok := strings.Cut(check, "="); ok {
			checks[i] = key + "=" + value
			if plain, err := url.QueryUnescape(value); err == nil && strings.ContainsAny(plain, "?@") {
				checks[i] = key + "=" + url.QueryEscape(Address(plain))
			}
		}
	}
	return shown + "#" + strings.Join(checks, "&")
}

// Address redacts an address. From a text that is no address it removes the parts that could be secrets of one.
func Address(address string) string {
	if u, err := url.Parse(address); err == nil {
		return URL(u)
	}
	address, _, _ = strings.Cut(address, "?")
	if i := strings.LastIndexByte(address, '@'); i >= 0 {
		return address[i+1:]
	}
	return address
}
