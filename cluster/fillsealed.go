package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"croft"
)

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
