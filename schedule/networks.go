package schedule

import (
	"context"
	"errors"
	"slices"
	"strings"

	"croft"
	"croft/internal/nearest"
)

// checkNetworks refuses invalid network names. Invalid.
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

// on returns the query for an instance with these networks, all of which its host must have, and this kind of machine,
// which its host must be able to run. It does not change q, because requests may share it.
func (q Query) on(s croft.InstanceSettings) Query {
	required := slices.Clone(q.RootRequired)
	for _, name := range s.Networks {
		if name != croft.DefaultNetworks {
			required = append(required, string(croft.NetworkTrait(name)))
		}
	}
	for _, t := range s.Machine.Traits() {
		required = append(required, string(t))
	}
	slices.Sort(required)
	q.RootRequired = slices.Compact(required)
	return q
}

// networks returns the named networks that a request depends on: the networks that it joins, and those whose traits its
// query requires or forbids. Traits are included, because otherwise the answer to a query would reveal which networks
// hosts have.
func (s *search) networks() []string {
	var words []string
	words = append(words, s.query.RootRequired...)
	for _, g := range s.query.Groups {
		for _, set := range g.Required {
			for _, t := range set {
				words = append(words, string(t))
			}
		}
		for _, t := range g.Forbidden {
			words = append(words, string(t))
		}
	}
	var names []string
	for _, word := range words {
		if name, ok := croft.NetworkOf(croft.Trait(strings.TrimPrefix(word, "!"))); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// admitNetworks refuses a request that names a network which no host opens to its project. NotFound: the error is the
// same as for a network that no host has.
func (s *search) admitNetworks(ctx context.Context) error {
	names := s.networks()
	if len(names) == 0 {
		return nil
	}
	hosts, err := s.allHosts(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		open := false
		for _, h := range hosts {
			open = open || h.AdmitsTo(name, s.inst.Project)
		}
		if !open {
			known, _ := s.knownNetworks(ctx) // if the list cannot be read, the error omits the hint
			return s.noNetwork(name, known)
		}
	}
	return nil
}

// connects returns why a host cannot connect the instance to its networks; nil: it can. It only checks whether the
// networks are open to the project, and whether the usual one gives the chosen address.
func (s *search) connects(o *snapshot, host croft.Host) error {
	if err := GivesAddress(s.inst.Spec, host, o.holders); err != nil {
		return err
	}
	for _, name := range s.networks() {
		if !host.AdmitsTo(name, s.inst.Project) {
			return croft.Errorf(croft.NoCapacity, "has no network %s", name)
		}
	}
	return nil
}

// knownNetworks returns the names of the networks that at least one host has and opens to the request's project.
func (s *search) knownNetworks(ctx context.Context) ([]string, error) {
	providers, err := s.Claims.Providers(ctx)
	if err != nil {
		return nil, err
	}
	hosts, err := s.allHosts(ctx)
	if err != nil {
		return nil, err
	}
	known := []string{croft.DefaultNetworks}
	for _, p := range visibleNetworks(providers, hosts, s.inst.Project) {
		for _, trait := range p.Traits {
			if name, ok := croft.NetworkOf(trait); ok {
				known = append(known, name)
			}
		}
	}
	slices.Sort(known)
	return slices.Compact(known), nil
}

// visibleNetworks returns the providers without the traits of networks that their hosts do not open to a project.
func visibleNetworks(all []croft.Provider, hosts map[croft.HostID]croft.Host, project croft.Project) []croft.Provider {
	visible := slices.Clone(all)
	for i, p := range visible {
		visible[i].Traits = slices.DeleteFunc(slices.Clone(p.Traits), func(t croft.Trait) bool {
			name, ok := croft.NetworkOf(t)
			return ok && !hosts[p.ID].AdmitsTo(name, project)
		})
	}
	return visible
}

// unknownNetwork returns the error to report if Placement refused the query because no host has one of the networks;
// nil: there is another reason.
func (s *search) unknownNetwork(ctx context.Context, refused error) error {
	if !errors.Is(refused, croft.Invalid) || len(s.inst.Spec.Networks) == 0 {
		return nil
	}
	known, err := s.knownNetworks(ctx)
	if err != nil {
		return nil // report the refusal without the hint
	}
	for _, name := range s.inst.Spec.Networks {
		if !slices.Contains(known, name) {
			return s.noNetwork(name, known)
		}
	}
	return nil
}

// noNetwork returns the error for a network that no host opens to the request's project.
func (s *search) noNetwork(name string, known []string) error {
	list := ""
	if len(known) > 0 {
		list = nearest.Hint(name, known) + "; they have: " + strings.Join(known, ", ")
	}
	return croft.Errorf(croft.NotFound, "schedule %s: no host has a network %q%s", s.inst.Name, name, list)
}
