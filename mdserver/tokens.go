package mdserver

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"time"

	"croft"
)

// tokens creates and verifies session tokens. It is stateless: a token is its expiry time, signed for one
// instance. A restart invalidates tokens, and clients request new ones.
type tokens struct{ key []byte }

func newTokens() tokens {
	key := make([]byte, sha256.Size)
	rand.Read(key) // never fails
	return tokens{key}
}

func (t tokens) make(id croft.InstanceID, end time.Time) string {
	body := binary.BigEndian.AppendUint64(nil, uint64(end.UnixMilli()))
	return base64.RawURLEncoding.EncodeToString(append(body, t.sign(id, body)...))
}

// good reports whether the token was issued for the instance and has not expired.
func (t tokens) good(token string, id croft.InstanceID) bool {
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(raw) != 8+sha256.Size {
		return false
	}
	body, signature := raw[:8], raw[8:]
	end := time.UnixMilli(int64(binary.BigEndian.Uint64(body)))
	return hmac.Equal(signature, t.sign(id, body)) && time.Now().Before(end)
}

func (t tokens) sign(id croft.InstanceID, body []byte) []byte {
	mac := hmac.New(sha256.New, t.key)
	mac.Write([]byte(id))
	mac.Write(body)
	return mac.Sum(nil)
}
