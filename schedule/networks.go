package schedule

import (
	"context"
	"errors"
	"slices"
	"strings"

	"croft"
	"croft/internal/nearest"
)

// checkNetworks refuses names that no host can have. Invalid.
func checkNetworks(names []string) error {
	for i, name := range names {
		if err := croft.CheckNetworkName(name); err != nil {
			return err
		}
		if slices.Contains(names[:i], name) {
			return croft.Errorf(croft.Invalid, "the network %q is named twice", name)
		}
	}
	return nil
}

// on is the query for an instance on these networks: its host has to have them
// all. q stays as it is, since several requests may share it.
func (q Query) on(networks []string) Query {
	required := slices.Clone(q.RootRequired)
	for _, name := range networks {
		if name != croft.DefaultNetworks {
			required = append(required, string(croft.NetworkTrait(name)))
		}
	}
	slices.Sort(required)
	q.RootRequired = slices.Compact(required)
	return q
}

// unknownNetwork says so where Placement refused the query because no host has one
// of the networks; nil where that is not why.
func (a *attempt) unknownNetwork(ctx context.Context, refused error) error {
	networks := a.inst.Spec.Networks
	if !errors.Is(refused, croft.Invalid) || len(networks) == 0 {
		return nil
	}
	providers, err := a.Claims.Providers(ctx)
	if err != nil {
		return nil // the refusal says enough
	}
	known := []string{croft.DefaultNetworks}
	for _, p := range providers {
		for _, trait := range p.Traits {
			if name, ok := croft.NetworkOf(trait); ok && !slices.Contains(known, name) {
				known = append(known, name)
			}
		}
	}
	slices.Sort(known)
	for _, name := range networks {
		if !slices.Contains(known, name) {
			return croft.Errorf(croft.NotFound, "schedule %s: no host has a network %q%s; they have: %s",
				a.inst.Name, name, nearest.Hint(name, known), strings.Join(known, ", "))
		}
	}
	return nil
}
