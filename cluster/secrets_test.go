package cluster

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"testing"
)

func TestASecretIsFoundInTexts(t *testing.T) {
	for _, value := range []string{"hunter2", "a/b c+d", `quo"te\\d`, "ünï", "abc", "x7", strings.Repeat("long", 50)} {
		s := NewSecret(value)
		std, raw := base64.StdEncoding.EncodeToString, base64.RawURLEncoding.EncodeToString
		for name, text := range map[string]string{
			"as it is":          "the password " + value + " is wrong",
			"in other letters":  strings.ToUpper(value),
			"in a URL":          "GET /?p=" + url.QueryEscape(value) + "&x=1",
			"in a path":         "GET /" + url.PathEscape(value),
			"in JSON":           fmt.Sprintf("{%q: %q}", "password", value),
			"in hexadecimal":    fmt.Sprintf("%x", value),
			"in base64":         std([]byte(value)),
			"in base64 of URLs": "token " + raw([]byte(value)) + ".",
		} {
			if !s.In(text) {
				t.Errorf("%q %s is not found in %q", value, name, text)
			}
		}
		for before := range 4 { // of a user:password pair, as in a header
			if text := std([]byte(strings.Repeat("u", before) + value + ":more")); len(value) >= 6 && !s.In(text) {
				t.Errorf("%q after %d bytes is not found in %q", value, before, text)
			}
		}
		if s.In("the site is down: 503") || s.In("") {
			t.Errorf("%q is found where it is not", value)
		}
	}
	if (Secret{}).In("anything") {
		t.Error("no secret is found")
	}
}
