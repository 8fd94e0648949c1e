package cluster

import (
	"fmt"
	"slices"
)

// Wants reports whether the build includes a member.
func (b Build) Wants(m Member) bool { return m.Role == Master || slices.Contains(b.Indexes, m.Index) }

// Keys returns the public SSH keys among the parameters.
func (b Build) Keys() (keys []string) {
	listed, _ := b.Parameters[ParamKeys].([]any)
	for _, key := range listed {
		keys = append(keys, fmt.Sprint(key))
	}
	return keys
}
