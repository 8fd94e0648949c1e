package schedule

import (
	"cmp"
	"maps"
	"slices"

	"croft"
)

// sharing is the trait of a provider that shares its inventory with the other providers in its aggregates, such as a
// storage pool.
const sharing croft.Trait = "MISC_SHARES_VIA_AGGREGATE"

// tree is a host as stored in Placement.
type tree struct {
	own    []croft.Provider // root first
	shared []croft.Provider // other providers that this one may use
}

func (t tree) id() croft.HostID      { return t.own[0].ID }
func (t tree) all() []croft.Provider { return slices.Concat(t.own, t.shared) }

func (t tree) has(id croft.HostID) bool {
	return slices.ContainsFunc(t.own, func(p croft.Provider) bool { return p.ID == id })
}

// treesOf groups providers by their roots. A provider that only shares is not a host, unless an agent registered it.
func treesOf(providers []croft.Provider, hosts map[croft.HostID]croft.Host) []tree {
	var trees []tree
	at := map[croft.HostID]int{}
	var pools []croft.Provider
	for _, p := range providers {
		_, host := hosts[p.ID]
		root := cmp.Or(p.Root, p.ID)
		if slices.Contains(p.Traits, sharing) {
			pools = append(pools, p)
			if !host && root == p.ID {
				continue
			}
		}
		i, seen := at[root]
		if !seen {
			i = len(trees)
			at[root] = i
			trees = append(trees, tree{})
		}
		if p.ID == root {
			trees[i].own = slices.Insert(trees[i].own, 0, p)
		} else {
			trees[i].own = append(trees[i].own, p)
		}
	}
	// Skip a tree whose root was removed while the providers were read.
	trees = slices.DeleteFunc(trees, func(t tree) bool { return cmp.Or(t.own[0].Root, t.id()) != t.id() })
	for i := range trees {
		trees[i].use(pools)
	}
	return trees
}

// use adds the sharing providers that have an aggregate in common with the tree.
func (t *tree) use(pools []croft.Provider) {
	for _, pool := range pools {
		near := slices.ContainsFunc(t.own, func(p croft.Provider) bool {
			return hasCommon(p.Aggregates, pool.Aggregates)
		})
		if near && !t.has(pool.ID) {
			t.shared = append(t.shared, pool)
		}
	}
}

func hasCommon(a, b []string) bool {
	return slices.ContainsFunc(a, func(s string) bool { return slices.Contains(b, s) })
}

// whole returns the tree without usage and reserved amounts, because an agent that stops reserves everything.
func (t tree) whole() tree {
	t.own = slices.Clone(t.own)
	for i := range t.own {
		t.own[i].Used = nil
		t.own[i].Inventories = maps.Clone(t.own[i].Inventories)
		for class, inv := range t.own[i].Inventories {
			inv.Reserved = 0
			t.own[i].Inventories[class] = inv
		}
	}
	return t
}
