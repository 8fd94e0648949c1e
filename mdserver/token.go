package mdserver

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"strconv"
	"time"

	"croft"
)

const (
	tokenHeader = "X-Aws-Ec2-Metadata-Token"
	ttlHeader   = "X-Aws-Ec2-Metadata-Token-Ttl-Seconds"
	maxTTL      = 21600 // seconds
)

// giveToken answers a PUT like version 2 of Amazon's service (IMDSv2). A request that was forwarded, by its headers,
// gets no token, and an answer with a token does not pass a router. Both keep tokens from clients that the guest itself
// serves.
func (s *Server) giveToken(w http.ResponseWriter, r *http.Request, g Guest) {
	seconds, err := strconv.Atoi(r.Header.Get(ttlHeader))
	switch {
	case g.IMDS == croft.IMDSOff:
		refuse(w, http.StatusForbidden, "the metadata service is off for this instance")
		return
	case r.Header.Get("X-Forwarded-For") != "":
		refuse(w, http.StatusForbidden, "no tokens for forwarded requests")
		return
	case err != nil || seconds < 1 || seconds > maxTTL:
		refuse(w, http.StatusBadRequest, ttlHeader+" must be from 1 to "+strconv.Itoa(maxTTL))
		return
	}
	if err := connectionOf(r.Context()).oneHop(); err != nil {
		s.config.Log.Warn("metadata: a token may pass routers within the guest", "instance", g.ID, "op", "token", "err",
			err)
	}
	w.Header().Set(ttlHeader, strconv.Itoa(seconds))
	answer(w, []byte(s.tokens.make(g, time.Now().Add(time.Duration(seconds)*time.Second))), mimeText)
}

// mayRead reports whether the request has the token that it needs; if not, it answers the request. An invalid token is
// refused even if no token is needed.
func (s *Server) mayRead(w http.ResponseWriter, r *http.Request, g Guest) bool {
	token := r.Header.Get(tokenHeader)
	switch {
	case g.IMDS == croft.IMDSOff:
		refuse(w, http.StatusForbidden, "the metadata service is off for this instance")
	case token == "" && g.IMDS == croft.IMDSRequired:
		refuse(w, http.StatusUnauthorized, "PUT "+tokenPath+
			" gives a token, and this instance's metadata is read with one alone")
	case token != "" && !s.tokens.good(token, g):
		refuse(w, http.StatusUnauthorized, "the token has ended or is not this instance's")
	default:
		return true
	}
	return false
}

// tokens creates and verifies session tokens. It is stateless: a token is its expiry time, signed for one instance. It
// is not valid for a later instance with the same UUID, because that has another project or another host key. A restart
// invalidates tokens, and clients request new ones.
type tokens struct{ key []byte }

func newTokens() tokens {
	key := make([]byte, sha256.Size)
	rand.Read(key) // never fails
	return tokens{key}
}

func (t tokens) make(g Guest, end time.Time) string {
	body := binary.BigEndian.AppendUint64(nil, uint64(end.UnixMilli()))
	return base64.RawURLEncoding.EncodeToString(append(body, t.sign(g, body)...))
}

// good reports whether the token was issued for the instance and has not expired.
func (t tokens) good(token string, g Guest) bool {
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(raw) != 8+sha256.Size {
		return false
	}
	body, signature := raw[:8], raw[8:]
	end := time.UnixMilli(int64(binary.BigEndian.Uint64(body)))
	return hmac.Equal(signature, t.sign(g, body)) && time.Now().Before(end)
}

func (t tokens) sign(g Guest, body []byte) []byte {
	mac := hmac.New(sha256.New, t.key)
	for _, part := range []string{string(g.ID), string(g.Project), g.HostKey} {
		mac.Write(binary.BigEndian.AppendUint32(nil, uint32(len(part))))
		mac.Write([]byte(part))
	}
	mac.Write(body)
	return mac.Sum(nil)
}
