package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// Digest returns a hash of a request, which identifies a repeated request. It leaves out the parameters, which may be
// secret and easy to guess; the stored parameters of the cluster are compared instead.
func (r Request) Digest() string {
	r.ID, r.Parameters = "", nil
	text, err := json.Marshal(r)
	if err != nil {
		// a struct of our own, without the parameters of unknown types: cannot fail
		panic("cluster: encode a request: " + err.Error())
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
