package partitions

import (
	"fmt"
	"testing"

	"croft"
	"croft/control/federation"
)

// TestMappingsOfAPeerAreBounded: the last mapping within a limit is stored, and the next one is refused.
func TestMappingsOfAPeerAreBounded(t *testing.T) {
	t.Parallel()
	mappings := func(n int, of func(i int) federation.Mapping) (all []federation.Mapping) {
		for i := range n {
			all = append(all, of(i))
		}
		return all
	}
	ofShop := func(i int) federation.Mapping {
		return federation.Mapping{Peer: "west", Project: "shop", Theirs: croft.Project(fmt.Sprintf("p%d", i))}
	}
	ofMany := func(i int) federation.Mapping {
		return federation.Mapping{Peer: "west", Project: croft.Project(fmt.Sprintf("q%d", i)),
			Theirs: croft.Project(fmt.Sprintf("p%d", i))}
	}
	ofEast := func(i int) federation.Mapping {
		m := ofShop(i)
		m.Peer = "east"
		return m
	}
	next := federation.Mapping{Peer: "west", Project: "shop", Theirs: "next"}
	for name, c := range map[string]struct {
		all  []federation.Mapping
		want croft.Kind
	}{
		"the last one of a project":       {mappings(mostOfProject-1, ofShop), ""},
		"one more of a project":           {mappings(mostOfProject, ofShop), croft.OverQuota},
		"the last one of a peer":          {mappings(mostMappings-1, ofMany), ""},
		"one more of a peer":              {mappings(mostMappings, ofMany), croft.Conflict},
		"those of another peer count not": {mappings(mostMappings, ofEast), ""},
	} {
		if _, err := settleMapping(c.all, next); croft.KindOf(err) != c.want {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	same := ofShop(3)
	same.TheirsID = "bound"
	all := append(mappings(3, ofShop), same)
	for given, want := range map[croft.ProjectID]croft.ProjectID{"": "bound", "named": "named"} {
		again := ofShop(3)
		again.TheirsID = given
		if got, err := settleMapping(all, again); err != nil || got.TheirsID != want {
			t.Errorf("one that is bound, with %q: bound to %q, %v; want %q", given, got.TheirsID, err, want)
		}
	}
}
