package registry

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
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
	if holds(text, s.Reveal()) {
		return withheld
	}
	return bounded(text)
}

func holds(text, secret string) bool {
	if secret == "" {
		return false
	}
	quoted, _ := json.Marshal(secret)
	forms := []string{secret, url.QueryEscape(secret), url.PathEscape(secret), hex.EncodeToString([]byte(secret)),
		strings.Trim(string(quoted), `"`)}
	for _, form := range append(forms, inBase64(secret)...) {
		if strings.Contains(strings.ToLower(text), strings.ToLower(form)) {
			return true
		}
	}
	return false
}

// inBase64 returns what the base64 of any text that holds a secret holds: it depends on what comes before and after.
func inBase64(secret string) (all []string) {
	for before := range 3 {
		raw := append(make([]byte, before), secret...)
		for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			whole := e.EncodeToString(raw[:len(raw)-len(raw)%3])
			if from := (before*8 + 5) / 6; len(whole)-from >= 4 {
				all = append(all, whole[from:])
			}
		}
	}
	if len(all) == 0 || len(secret) < 6 { // too short for that: as it is alone
		all = append(all, base64.StdEncoding.EncodeToString([]byte(secret)))
	}
	return all
}

// refused is the error about a credential that a site does not accept. It wraps nothing of the site.
func refused(site string, why string) error {
	return croft.Errorf(croft.Invalid, "site %s does not accept the credential: %s", site, why)
}
