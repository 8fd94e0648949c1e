package registry

import (
	"strings"

	"croft"
	"croft/cluster"
)

// bounded cuts a site's reason to its maximum length.
func bounded(text string) string {
	if len(text) > cluster.MaxMessage {
		text = strings.ToValidUTF8(text[:cluster.MaxMessage], "") + "..."
	}
	return text
}

// withheld replaces a site's reason that contains the secret.
const withheld = "the reason is not shown because it contains the secret"

// clean returns the reason of a site in a form that may be shown and stored: withheld if it contains the secret, plain
// or in an encoding used for sending.
func clean(err error, s cluster.Secret) string {
	text := err.Error()
	if s.In(text) {
		return withheld
	}
	return bounded(text)
}

// refused returns the error for a credential that a site does not accept. It wraps no error of the site.
func refused(site string, why string) error {
	return croft.Errorf(croft.Invalid, "site %s does not accept the credential: %s", site, why)
}
