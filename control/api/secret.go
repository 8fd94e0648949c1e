package api

import (
	"encoding/json"

	"croft/cluster"
)

// Given is a secret on its way in: the one type of which encoding/json writes the value, into the body of a request.
// Everything else that formats it gets [secret].
type Given struct{ cluster.Secret }

// MarshalJSON writes the value.
func (g Given) MarshalJSON() ([]byte, error) { return json.Marshal(g.Reveal()) }

// UnmarshalJSON reads the value. Its error does not have it.
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
