package scheduletest

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"croft"
	"croft/schedule"
)

var _ schedule.Claims = (*Placement)(nil)

// Placement keeps claims on single providers in memory: a Placement without nested providers, generations or HTTP. Its
// claims never exceed an inventory.
type Placement struct {
	mu        sync.Mutex
	order     []croft.HostID
	providers map[croft.HostID]croft.Provider
	claims    map[croft.InstanceID]croft.Candidate
	made      map[croft.InstanceID]int // sequence numbers of the claims
	last      int
	faults    map[string][]func() error
}

// NewPlacement returns a Placement with these providers.
func NewPlacement(providers ...croft.Provider) *Placement {
	p := &Placement{
		providers: map[croft.HostID]croft.Provider{},
		claims:    map[croft.InstanceID]croft.Candidate{},
		made:      map[croft.InstanceID]int{},
		faults:    map[string][]func() error{},
	}
	for _, provider := range providers {
		p.order = append(p.order, provider.ID)
		p.providers[provider.ID] = provider
	}
	return p
}

// Fail makes the next calls of a method (Candidates, Claim, Release, Providers) return the results of with, one per
// call; after a nil result the call proceeds as usual. The functions run before the call, without the lock.
func (p *Placement) Fail(method string, with ...func() error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults[method] = append(p.faults[method], with...)
}

// fault takes the next planned failure of a method.
func (p *Placement) fault(ctx context.Context, method string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p.mu.Lock()
	planned := p.faults[method]
	if len(planned) == 0 {
		p.mu.Unlock()
		return nil
	}
	p.faults[method] = planned[1:]
	p.mu.Unlock()
	return planned[0]()
}

// AddTrait adds a trait to a provider.
func (p *Placement) AddTrait(host croft.HostID, t croft.Trait) {
	p.mu.Lock()
	defer p.mu.Unlock()
	provider := p.providers[host]
	provider.Traits = append(slices.Clone(provider.Traits), t)
	p.providers[host] = provider
}

// Claimed lists the instances with a claim.
func (p *Placement) Claimed() []croft.InstanceID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.claims))
}

func (p *Placement) used(host croft.HostID) croft.Resources {
	used := croft.Resources{}
	for _, claim := range p.claims {
		for class, amount := range claim.Allocations[host] {
			used[class] += amount
		}
	}
	return used
}

// fits reports whether a provider has enough free capacity for the amounts.
func (p *Placement) fits(host croft.HostID, amounts croft.Resources) bool {
	used := p.used(host)
	for class, amount := range amounts {
		inv, ok := p.providers[host].Inventories[class]
		if !ok || used[class]+amount > inv.Capacity() || inv.MaxUnit > 0 && amount > inv.MaxUnit {
			return false
		}
	}
	return true
}

// Candidates implements schedule.Claims.
func (p *Placement) Candidates(ctx context.Context, query string, limit int) ([]croft.Candidate, error) {
	if err := p.fault(ctx, "Candidates"); err != nil {
		return nil, err
	}
	q, err := schedule.ParseQuery(query)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, word := range q.RootRequired {
		if !p.anyHas(croft.Trait(strings.TrimPrefix(word, "!"))) {
			return nil, croft.Errorf(croft.Invalid, "No such trait(s): %s.", word)
		}
	}
	var found []croft.Candidate
	for _, host := range p.order {
		if len(found) < limit && p.fits(host, q.Total()) && qualified(p.providers[host], q) {
			found = append(found, p.candidate(host, q.Total()))
		}
	}
	return found, nil
}

func (p *Placement) anyHas(t croft.Trait) bool {
	for _, provider := range p.providers {
		if slices.Contains(provider.Traits, t) {
			return true
		}
	}
	return false
}

// qualified reports whether a provider has the traits in a query.
func qualified(provider croft.Provider, q schedule.Query) bool {
	has := func(t croft.Trait) bool { return slices.Contains(provider.Traits, t) }
	for _, word := range q.RootRequired {
		name, forbidden := strings.CutPrefix(word, "!")
		if has(croft.Trait(name)) == forbidden {
			return false
		}
	}
	for _, g := range q.Groups {
		if g.InTree != "" && g.InTree != provider.ID {
			return false
		}
		for _, set := range g.Required {
			if !slices.ContainsFunc(set, has) {
				return false
			}
		}
		if slices.ContainsFunc(g.Forbidden, has) {
			return false
		}
	}
	return true
}

func (p *Placement) candidate(host croft.HostID, amounts croft.Resources) croft.Candidate {
	capacity := croft.Resources{}
	for class, inv := range p.providers[host].Inventories {
		capacity[class] = inv.Capacity()
	}
	return croft.Candidate{
		Allocations: map[croft.HostID]croft.Resources{host: amounts},
		Summaries:   map[croft.HostID]croft.Summary{host: {Capacity: capacity, Used: p.used(host)}},
	}
}

// Claim implements schedule.Claims.
func (p *Placement) Claim(ctx context.Context, id croft.InstanceID, _ croft.Owner, c croft.Candidate) error {
	if err := p.fault(ctx, "Claim"); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, twice := p.claims[id]; twice {
		return croft.Errorf(croft.Conflict, "instance %s holds a claim already", id)
	}
	for host, amounts := range c.Allocations {
		if !p.fits(host, amounts) {
			return croft.Errorf(croft.NoCapacity, "host %s is full", host)
		}
	}
	p.claims[id] = c
	p.last++
	p.made[id] = p.last
	return nil
}

// Release implements schedule.Claims.
func (p *Placement) Release(ctx context.Context, id croft.InstanceID, may croft.Permit) error {
	p.mu.Lock()
	read := p.made[id]
	p.mu.Unlock()
	on, err := may(ctx)
	if err != nil {
		return err
	}
	if err := p.fault(ctx, "Release"); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.made[id] != read {
		return croft.Errorf(croft.Conflict, "the claim of instance %s changed while it was being given back", id)
	}
	left := maps.Clone(p.claims[id].Allocations)
	maps.DeleteFunc(left, func(host croft.HostID, _ croft.Resources) bool {
		return len(on) == 0 || slices.Contains(on, host)
	})
	p.claims[id] = croft.Candidate{Allocations: left}
	if len(left) == 0 {
		delete(p.claims, id)
		delete(p.made, id)
	}
	return nil
}

// Provider implements hosts.Claims.
func (p *Placement) Provider(ctx context.Context, id croft.HostID) (croft.Provider, error) {
	all, err := p.Providers(ctx)
	for _, one := range all {
		if one.ID == id {
			return one, nil
		}
	}
	if err == nil {
		err = croft.Errorf(croft.NotFound, "there is no resource provider %s", id)
	}
	return croft.Provider{}, err
}

// Providers implements schedule.Claims.
func (p *Placement) Providers(ctx context.Context) ([]croft.Provider, error) {
	if err := p.fault(ctx, "Providers"); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []croft.Provider
	for _, host := range p.order {
		provider := p.providers[host]
		provider.Used = p.used(host)
		all = append(all, provider)
	}
	return all, nil
}

// ClaimOf implements schedule.Claims.
func (p *Placement) ClaimOf(ctx context.Context, id croft.InstanceID) (croft.Claim, error) {
	if err := p.fault(ctx, "ClaimOf"); err != nil {
		return croft.Claim{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c := croft.Claim{Instance: id, Allocations: maps.Clone(p.claims[id].Allocations)}
	if made := int64(p.made[id]); made > 0 {
		c.Generation = &made
	}
	return c, nil
}

// Reclaim implements schedule.Claims.
func (p *Placement) Reclaim(ctx context.Context, had croft.Claim, _ croft.Owner, c croft.Candidate) error {
	if err := p.fault(ctx, "Reclaim"); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if had.Generation == nil && p.made[had.Instance] > 0 || had.Generation != nil &&
		*had.Generation != int64(p.made[had.Instance]) {
		return croft.Errorf(croft.Conflict, "the claim of %s changed", had.Instance)
	}
	was, claimed := p.claims[had.Instance]
	delete(p.claims, had.Instance)
	for host, amounts := range c.Allocations {
		if !p.fits(host, amounts) {
			if claimed {
				p.claims[had.Instance] = was
			}
			return croft.Errorf(croft.NoCapacity, "%s does not fit", amounts)
		}
	}
	p.last++
	p.claims[had.Instance], p.made[had.Instance] = c, p.last
	return nil
}
