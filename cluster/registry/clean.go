package registry

import (
	"strings"

	"croft"
	"croft/cluster"
)

// bounded returns the beginning of a site's reason.
func bounded(text string) string {
	if len(text) > cluster.MaxMessage {
		text = strings.ToValidUTF8(text[:cluster.MaxMessage], "") + "..."
	}
	return text
}

// withheld is said in place of a site's reason that holds the secret.
const withheld = "its reason is not shown, since it holds the secret"

// clean returns the reason of a site as it may be shown and kept: nothing of it, if it holds the secret in any form in
// which it was sent or could be repeated.
func clean(err error, s cluster.Secret) string {
	text := err.Error()
	if s.In(text) {
		return withheld
	}
	return bounded(text)
}

// refused is the error about a credential that a site does not accept. It wraps nothing of the site.
func refused(site string, why string) error {
	return croft.Errorf(croft.Invalid, "site %s does not accept the credential: %s", site, why)
}
