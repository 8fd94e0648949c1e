package pool

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
)

// These are the only definitions of what a resource can be used for. Decide uses them to count, assign to hand out, and
// why to explain.

// usable reports whether a ticket may get the resource now, if the ticket's tags, project and sandbox fit: it is up,
// unassigned, and its newest livecheck did not fail.
func (r *Resource) usable() bool { return r.Idle() && r.Failures == 0 }

// warm reports whether the resource is part of the pool's warm stock: every ticket for the pool may get it.
func (s *Settings) warm(r *Resource) bool { return r.usable() && r.Free() && !s.outdated(r) }

// outdated reports whether the resource came up under settings that no longer apply: it lacks a tag that the pool has
// now, or, in a pool that renews its resources, it was made in another way.
func (s *Settings) outdated(r *Resource) bool {
	for _, t := range s.AllTags() {
		if !slices.ContainsFunc(r.Tags, func(has Tag) bool { return has.Name == t.Name }) {
			return true
		}
	}
	return s.Renew && r.Recipe != "" && r.Recipe != s.recipe()
}

// recipe identifies how the pool makes resources: its command or its instance.
func (s *Settings) recipe() string {
	text, err := json.Marshal([]any{s.Commands.New, s.Instance})
	if err != nil {
		panic(fmt.Sprintf("pool: encode settings: %v", err)) // impossible: they were decoded from the file
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}
