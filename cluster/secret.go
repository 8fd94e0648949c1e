package cluster

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
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
