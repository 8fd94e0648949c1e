package api

import (
	"encoding/json"

	"croft/cluster"
)

// Given is a secret in a request: the only type whose value encoding/json writes, into the body of a request. All other
// formatting prints [secret].
type Given struct{ cluster.Secret }

// MarshalJSON writes the value.
func (g Given) MarshalJSON() ([]byte, error) { return json.Marshal(g.Reveal()) }

// UnmarshalJSON reads the value. Its errors do not contain it.
func (g *Given) UnmarshalJSON(text []byte) error {
	var value string
	if err := json.Unmarshal(text, &value); err != nil {
		return errNotText
	}
	g.Secret = cluster.NewSecret(value)
	return nil
}

// errNotText is the error for a secret of another type.
var errNotText error = NewProblem(BadRequest, "the secret is not a text")
