package cluster

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"

	"croft"
)

// Secret is a value that is never printed: formatting, encoding or logging it gives [secret].
type Secret struct{ value string }

// NewSecret wraps a value.
func NewSecret(value string) Secret { return Secret{value} }

const masked = "[secret]"

// Reveal returns the value. Only the code that sends it calls this.
func (s Secret) Reveal() string { return s.value }

// Empty reports whether there is no value.
func (s Secret) Empty() bool { return s.value == "" }

// String implements fmt.Stringer.
func (Secret) String() string { return masked }

// GoString implements fmt.GoStringer.
func (Secret) GoString() string { return masked }

// Format implements fmt.Formatter, for every verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, masked) }

// MarshalJSON implements json.Marshaler.
func (Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + masked + `"`), nil }

// MarshalText implements encoding.TextMarshaler.
func (Secret) MarshalText() ([]byte, error) { return []byte(masked), nil }

// LogValue implements slog.LogValuer.
func (Secret) LogValue() slog.Value { return slog.StringValue(masked) }

// Sealed is an encrypted value with the data to open it; see cluster/seal. Its text is base64 and reveals nothing.
type Sealed json.RawMessage

// MarshalJSON returns the sealed value as it is stored.
func (s Sealed) MarshalJSON() ([]byte, error) { return json.RawMessage(s).MarshalJSON() }

// UnmarshalJSON reads a stored value.
func (s *Sealed) UnmarshalJSON(b []byte) error { return (*json.RawMessage)(s).UnmarshalJSON(b) }

// Vault seals and opens values. about names the record that a value belongs to: a value that is moved to another record
// cannot be opened there.
type Vault interface {
	// Seal encrypts a value. Unavailable: there is no key.
	Seal(s Secret, about string) (Sealed, error)
	// Open decrypts a value. Unavailable: there is no key, or another key sealed the value. Invalid: the value was
	// moved or changed.
	Open(v Sealed, about string) (Secret, error)
}

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

// AboutCredential returns the text that binds a sealed secret to its credential, for Vault.
func AboutCredential(p croft.PartitionID, c Credential) string {
	return strings.Join([]string{"credential", string(p), string(c.Project), c.User, string(c.ID), c.Site}, "\x00")
}

// AboutValue returns the text that binds a sealed output or parameter to its cluster; name is as in Cluster.Sealed.
func AboutValue(p croft.PartitionID, c croft.ClusterID, name string) string {
	return strings.Join([]string{"value", string(p), string(c), name}, "\x00")
}

// AboutAccount returns the text that binds a sealed password to its account.
func AboutAccount(p croft.PartitionID, c croft.ClusterID, user string) string {
	return strings.Join([]string{"account", string(p), string(c), user}, "\x00")
}

// parameterPrefix starts the names of parameters in Cluster.Sealed. It distinguishes them from outputs, which are
// stored there under their plain names.
const parameterPrefix = "parameter "

// SecretOutputs returns the sorted names of the outputs that are stored sealed.
func (c Cluster) SecretOutputs() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(c.Sealed)) {
		if !strings.HasPrefix(name, parameterPrefix) {
			names = append(names, name)
		}
	}
	return names
}

// SealParameters sets the given parameters of a cluster: those named in hidden go to Sealed, sealed. Unavailable: there
// is no key.
func SealParameters(v Vault, p croft.PartitionID, c Cluster, given map[string]any, hidden []string) (Cluster, error) {
	c.Sealed = maps.Clone(c.Sealed)
	c.Parameters = maps.Clone(given)
	for _, name := range hidden {
		if v == nil {
			return c, croft.Errorf(croft.Unavailable, "parameter %s is secret, and there is no key to seal it with",
				name)
		}
		text, err := json.Marshal(given[name])
		if err != nil {
			return c, fmt.Errorf("seal parameter %s: %w", name, err)
		}
		sealed, err := v.Seal(NewSecret(string(text)), AboutValue(p, c.ID, parameterPrefix+name))
		if err != nil {
			return c, fmt.Errorf("seal parameter %s: %w", name, err)
		}
		if c.Sealed == nil {
			c.Sealed = map[string]Sealed{}
		}
		c.Sealed[parameterPrefix+name] = sealed
		delete(c.Parameters, name)
	}
	return c, nil
}

// GivenParameters returns the given parameters of a cluster, including the sealed ones, for Filling.Given. Unavailable:
// there is no key for them.
func GivenParameters(v Vault, p croft.PartitionID, c Cluster) (map[string]any, error) {
	given := maps.Clone(c.Parameters)
	for _, key := range slices.Sorted(maps.Keys(c.Sealed)) {
		name, ok := strings.CutPrefix(key, parameterPrefix)
		if !ok {
			continue
		}
		if v == nil {
			return nil, croft.Errorf(croft.Unavailable, "parameter %s is sealed, and there is no key to open it with",
				name)
		}
		secret, err := v.Open(c.Sealed[key], AboutValue(p, c.ID, key))
		if err != nil {
			return nil, fmt.Errorf("open parameter %s: %w", name, err)
		}
		var value any
		if err := json.Unmarshal([]byte(secret.Reveal()), &value); err != nil {
			return nil, croft.Errorf(croft.Invalid, "parameter %s: the sealed value is not JSON", name)
		}
		if given == nil {
			given = map[string]any{}
		}
		given[name] = value
	}
	return given, nil
}

// SameParameters reports whether two sets of given parameters are equal, regardless of the Go types of their numbers.
func SameParameters(a, b map[string]any) bool {
	if len(a) == 0 && len(b) == 0 {
		return true
	}
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}
