package placement

import (
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"croft/placement/internal/schema"
)

// param is one parameter of a query string.
type param struct{ key, value string }

// query holds the parameters of a query string, in order.
type query []param

func parseQuery(raw string) (query, error) {
	var out query
	for part := range strings.SplitSeq(raw, "&") {
		if part == "" {
			continue
		}
		key, value, _ := strings.Cut(part, "=")
		p := param{unescape(key), unescape(value)}
		if !utf8.ValidString(p.key) || !utf8.ValidString(p.value) {
			return nil, badRequest("Invalid query string parameters: '%s' is not UTF-8", part)
		}
		out = append(out, p)
	}
	return out, nil
}

// unescape decodes a string and keeps invalid escapes.
func unescape(s string) string {
	if out, err := url.QueryUnescape(s); err == nil {
		return out
	}
	s = strings.ReplaceAll(s, "+", " ")
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(c))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// all returns every value of a key.
func (q query) all(key string) []string {
	var out []string
	for _, p := range q {
		if p.key == key {
			out = append(out, p.value)
		}
	}
	return out
}

// last returns the last value of a key.
func (q query) last(key string) (string, bool) {
	for i := len(q) - 1; i >= 0; i-- {
		if q[i].key == key {
			return q[i].value, true
		}
	}
	return "", false
}

// validate checks the parameters, the last value of each key, against a schema.
func (q query) validate(want *schema.Schema) error {
	given := make(map[string]string, len(q))
	for _, p := range q {
		given[p.key] = p.value
	}
	if err := want.Validate(schema.Object(given)); err != nil {
		return badRequest("Invalid query string parameters: %v", err)
	}
	return nil
}
