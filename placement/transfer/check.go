package transfer

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"croft"
	"croft/internal/lazyregexp"
)

// part is one of the lists of a state.
type part int

const (
	classes part = iota
	traits
	providers
	consumers
)

// flaw is an error in one object of a state.
type flaw struct {
	of    part
	index int
	err   error
}

// The limits of Placement.
const (
	maxAmount = 1<<31 - 1
	maxRatio  = 3.40282e+38
	maxName   = 200 // of a provider
	maxOwner  = 255 // of a project, user, type, class or trait
)

var (
	customName   = lazyregexp.New(`^CUSTOM_[A-Z0-9_]+$`)
	consumerType = lazyregexp.New(`^[A-Z0-9_]+$`)
)

func isCustom[T ~string](name T) bool { return strings.HasPrefix(string(name), "CUSTOM_") }

// check returns the first flaw in the state that every Placement would refuse; nil: the state is valid.
func (s *State) check() *flaw {
	if i, err := checkNames(s.Classes); err != nil {
		return &flaw{classes, i, fmt.Errorf("resource class %w", err)}
	}
	if i, err := checkNames(s.Traits); err != nil {
		return &flaw{traits, i, fmt.Errorf("trait %w", err)}
	}
	c := checker{
		classes: set(s.Classes), traits: set(s.Traits),
		providers: map[croft.HostID]*Provider{}, names: map[string]croft.HostID{}, seen: map[croft.InstanceID]bool{},
	}
	for i := range s.Providers {
		if err := c.provider(&s.Providers[i]); err != nil {
			return &flaw{providers, i, fmt.Errorf("provider %s: %w", s.Providers[i].ID, err)}
		}
	}
	for i := range s.Providers {
		if err := c.ancestry(&s.Providers[i]); err != nil {
			return &flaw{providers, i, fmt.Errorf("provider %s: %w", s.Providers[i].ID, err)}
		}
	}
	for i := range s.Consumers {
		if err := c.consumer(&s.Consumers[i]); err != nil {
			return &flaw{consumers, i, fmt.Errorf("consumer %s: %w", s.Consumers[i].ID, err)}
		}
	}
	return nil
}

func checkNames[T ~string](names []T) (int, error) {
	seen := map[T]bool{}
	for i, name := range names {
		switch {
		case !customName.MatchString(string(name)) || len(name) > maxOwner:
			return i, fmt.Errorf("%q is not CUSTOM_ and then A to Z, 0 to 9 and _, %d at most", name, maxOwner)
		case seen[name]:
			return i, fmt.Errorf("%s is there twice", name)
		}
		seen[name] = true
	}
	return 0, nil
}

func set[T comparable](list []T) map[T]bool {
	out := make(map[T]bool, len(list))
	for _, x := range list {
		out[x] = true
	}
	return out
}

// checker holds the objects checked so far.
type checker struct {
	classes   map[croft.ResourceClass]bool
	traits    map[croft.Trait]bool
	providers map[croft.HostID]*Provider
	names     map[string]croft.HostID
	seen      map[croft.InstanceID]bool
}

func (c *checker) provider(p *Provider) error {
	rival, taken := c.names[p.Name]
	switch n := utf8.RuneCountInString(p.Name); {
	case !isUUID(p.ID):
		return errors.New("its uuid is not a UUID")
	case c.providers[p.ID] != nil:
		return errors.New("it is there twice")
	case n < 1 || n > maxName:
		return fmt.Errorf("its name has %d characters, want 1 to %d", n, maxName)
	case taken:
		return fmt.Errorf("its name %q is that of provider %s too", p.Name, rival)
	case p.Generation < 0:
		return fmt.Errorf("its generation is %d, want 0 or more", p.Generation)
	}
	c.providers[p.ID], c.names[p.Name] = p, p.ID
	for _, class := range slices.Sorted(maps.Keys(p.Inventories)) {
		if isCustom(class) && !c.classes[class] {
			return fmt.Errorf("its resource class %s has no line of its own", class)
		}
		if err := checkInventory(p.Inventories[class]); err != nil {
			return fmt.Errorf("inventory of %s: %w", class, err)
		}
	}
	for i, t := range p.Traits {
		switch {
		case isCustom(t) && !c.traits[t]:
			return fmt.Errorf("its trait %s has no line of its own", t)
		case slices.Contains(p.Traits[:i], t):
			return fmt.Errorf("it has the trait %s twice", t)
		}
	}
	return checkAggregates(p.Aggregates)
}

func checkAggregates(list []string) error {
	for i, a := range list {
		switch {
		case !isUUID(a):
			return fmt.Errorf("its aggregate %q is not a UUID", a)
		case slices.Contains(list[:i], a):
			return fmt.Errorf("it has the aggregate %s twice", a)
		}
	}
	return nil
}

// canonical converts a UUID to the form used in comparisons. Other strings are unchanged.
func canonical[T ~string](id T) T {
	if u, err := uuid.Parse(string(id)); err == nil && (len(id) == 32 || len(id) == 36) {
		return T(u.String())
	}
	return id
}

func isUUID[T ~string](id T) bool {
	return len(id) == 36 && canonical(id[:8]+id[9:13]+id[14:18]+id[19:23]+id[24:]) == id
}

func checkInventory(i croft.Inventory) error {
	for _, f := range []struct {
		name     string
		n, least int64
	}{
		{"total", i.Total, 1}, {"reserved", i.Reserved, 0}, {"min_unit", i.MinUnit, 1}, {"max_unit", i.MaxUnit,
			1}, {"step_size", i.StepSize, 1},
	} {
		if f.n < f.least || f.n > maxAmount {
			return fmt.Errorf("%s is %d, want %d to %d", f.name, f.n, f.least, maxAmount)
		}
	}
	if i.Reserved > i.Total {
		return fmt.Errorf("reserved is %d, more than the total of %d", i.Reserved, i.Total)
	}
	if i.AllocationRatio > maxRatio {
		return fmt.Errorf("allocation_ratio is %v, want %v at most", i.AllocationRatio, maxRatio)
	}
	return nil
}

// ancestry finds missing parents and loops.
func (c *checker) ancestry(p *Provider) error {
	for up, steps := p, 0; up.Parent != ""; steps++ {
		parent := c.providers[up.Parent]
		switch {
		case parent == nil:
			return fmt.Errorf("its parent %s has no line of its own", up.Parent)
		case steps > len(c.providers):
			return errors.New("it is its own ancestor")
		}
		up = parent
	}
	return nil
}

func (c *checker) consumer(x *Consumer) error {
	switch {
	case !isUUID(x.ID):
		return errors.New("its uuid is not a UUID")
	case c.seen[x.ID]:
		return errors.New("it is there twice")
	case !isOwner(x.Project):
		return fmt.Errorf("its project has %d characters, want 1 to %d", utf8.RuneCountInString(x.Project), maxOwner)
	case !isOwner(x.User):
		return fmt.Errorf("its user has %d characters, want 1 to %d", utf8.RuneCountInString(x.User), maxOwner)
	case x.Type != "" && (!consumerType.MatchString(x.Type) || !isOwner(x.Type)):
		return fmt.Errorf("its type %q is not A to Z, 0 to 9 and _, %d at most; leave it out where it is unknown",
			x.Type,
			maxOwner)
	case x.Generation < 0:
		return fmt.Errorf("its generation is %d, want 0 or more", x.Generation)
	case len(x.Allocations) == 0:
		return errors.New("it has no allocations, and there are no such consumers")
	}
	c.seen[x.ID] = true
	for _, id := range slices.Sorted(maps.Keys(x.Allocations)) {
		if err := c.allocations(id, x.Allocations[id]); err != nil {
			return err
		}
	}
	return nil
}

func isOwner(s string) bool {
	n := utf8.RuneCountInString(s)
	return n > 0 && n <= maxOwner
}

func (c *checker) allocations(id croft.HostID, r croft.Resources) error {
	p := c.providers[id]
	switch {
	case p == nil:
		return fmt.Errorf("its provider %s has no line of its own", id)
	case len(r) == 0:
		return fmt.Errorf("it has nothing of provider %s", id)
	}
	for _, class := range slices.Sorted(maps.Keys(r)) {
		if _, offered := p.Inventories[class]; !offered {
			return fmt.Errorf("it has %s of provider %s, which has no inventory of that", class, id)
		}
		if n := r[class]; n < 1 || n > maxAmount {
			return fmt.Errorf("it has %d of %s, want 1 to %d", n, class, maxAmount)
		}
	}
	return nil
}

func compareConsumers(a, b Consumer) int { return cmp.Compare(a.ID, b.ID) }
