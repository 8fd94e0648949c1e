package cluster

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"strings"
)

// In reports whether a text, such as a site's reason, contains the secret, in plain form or in an encoding that is used
// for sending: escaped, in hexadecimal digits, or in base64, alone or with more text around it.
func (s Secret) In(text string) bool {
	if s.value == "" {
		return false
	}
	quoted, _ := json.Marshal(s.value) // a string: cannot fail
	forms := []string{s.value, url.QueryEscape(s.value), url.PathEscape(s.value), hex.EncodeToString([]byte(s.value)),
		strings.Trim(string(quoted), `"`)}
	text = strings.ToLower(text)
	for _, form := range append(forms, s.inBase64()...) {
		if strings.Contains(text, strings.ToLower(form)) {
			return true
		}
	}
	return false
}

// inBase64 returns several strings. The base64 encoding of any text with the secret contains one of them. The encoding
// depends on the number of bytes before the secret, modulo 3.
func (s Secret) inBase64() (all []string) {
	for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		all = append(all, e.EncodeToString([]byte(s.value)))
		for before := range 3 {
			raw := append(make([]byte, before), s.value...)
			whole, from := e.EncodeToString(raw[:len(raw)-len(raw)%3]), (before*8+5)/6
			if len(whole)-from >= 4 {
				all = append(all, whole[from:])
			}
		}
	}
	return all
}
