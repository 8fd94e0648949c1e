package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// Digest returns a number of a request by which a repeated one is known. It is not of the parameters, which may be
// secret and easy to guess; those that a cluster keeps are compared instead.
func (r Request) Digest() string {
	r.ID, r.Parameters = "", nil
	text, err := json.Marshal(r)
	if err != nil {
		panic("cluster: encode a request: " + err.Error()) // our own noun, without what is not known: cannot happen
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
