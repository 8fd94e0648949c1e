package objects_test

import (
	"slices"
	"testing"

	"croft"
	"croft/tenant/access"
	"croft/tenant/objects"
)

// TestFiltersChooseHosts tests the path from a caller's filters to the selected hosts.
func TestFiltersChooseHosts(t *testing.T) {
	w := newWorld(t)
	var hosts []croft.HostID
	for _, change := range []objects.Change{
		{Set: set(`{"tier": "gold", "owner": "jo"}`).Set, AddTags: []string{"new"}},
		{Set: set(`{"tier": "tin", "cost": "7"}`).Set},
		{AddTags: []string{"old"}},
	} {
		ref := w.add(objects.Host, "")
		hosts = append(hosts, croft.HostID(ref.ID))
		w.mustChange(operator, ref, change)
	}
	w.defineAt(objects.Place{Level: objects.Partition, Kind: objects.Host}, `
properties:
  tier: {permissions: [{project: lab, value: r}]}
  owner: {permissions: [{role: project-admin, value: rw}]}
`)
	bare := croft.HostID(w.add(objects.Host, "").ID)
	for _, c := range []struct {
		name            string
		caller          access.Caller
		where, whereNot []string
		want            []int  // matching hosts; 3: the one without properties and tags
		kept            string // where filters that are kept for a move
	}{
		{"an operator, by one", operator, []string{"tier=gold"}, nil, []int{0}, "tier=gold"},
		{"an operator, by one of two", operator, []string{"tier=gold", "tag:old"}, nil, []int{0, 2}, "tier=gold"},
		{"an operator, by none of two", operator, nil, []string{"tier=gold", "tag:old"}, []int{1, 3}, ""},
		{"a member, by what is permitted", member, []string{"tier=g*"}, nil, []int{0}, "tier=g*"},
		{"a member, by what is for others", member, []string{"owner=jo"}, nil, nil, "owner=jo"},
		{"a member, against what is for others", member, nil, []string{"owner=jo", "cost"}, []int{0, 1, 2, 3}, ""},
		{"a member, by what no permission names", member, []string{"cost=7"}, nil, nil, "cost=7"},
		{"a member, by a tag", member, []string{"tag:new"}, nil, nil, "tag:new"},
		{"a member, by a tag and what is permitted", member, []string{"tier=gold tag:new"}, nil, nil,
			"tier=gold tag:new"},
		{"a member, by what is for others or is permitted", member, []string{"owner=jo", "tier=tin"}, nil, []int{1},
			"tier=tin"},
		{"an admin, by what is for admins", as("other", access.ProjectAdmin), []string{"owner=jo"}, nil, []int{0},
			"owner=jo"},
		{"another project", as("other", access.Member), []string{"tier=gold"}, nil, nil, "tier=gold"},
	} {
		t.Run(c.name, func(t *testing.T) {
			where, whereNot, hidden, err := w.ForHosts(t.Context(), c.caller, c.where, c.whereNot)
			if err != nil {
				t.Fatal(err)
			}
			if len(where) > 0 && where[0] != c.kept {
				t.Errorf("a move looks at %q, want %q first", where, c.kept)
			}
			n, err := objects.OfHosts{Store: w.memory}.FilterHosts(t.Context(), where, whereNot, hidden)
			if err != nil {
				t.Fatal(err)
			}
			spec := croft.Spec{Where: where, WhereNot: whereNot}
			var got []int
			for i, id := range append(slices.Clone(hosts), bare) {
				if n.Admit(spec, id) == nil {
					got = append(got, i)
				}
				if generation := n.Generation(spec, id); spec.HasPropertyFilters() &&
					(*generation == 0) != (id == bare) {
					t.Errorf("host %d has generation %d", i, *generation)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
	for _, wrong := range []string{"", "a$b", "tag:", `a="b`} {
		for _, caller := range []access.Caller{operator, member} {
			_, _, _, err := w.ForHosts(t.Context(), caller, nil, []string{wrong})
			if croft.KindOf(err) != croft.Invalid {
				t.Errorf("%q: got %v", wrong, err)
			}
		}
		if _, err := (objects.OfHosts{Store: w.memory}).FilterHosts(t.Context(), []string{wrong}, nil,
			nil); croft.KindOf(err) != croft.Invalid {
			t.Errorf("%q: got %v", wrong, err)
		}
	}
}
