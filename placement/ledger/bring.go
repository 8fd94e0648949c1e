package ledger

import (
	"regexp"
	"slices"
	"strings"
)

// CustomTrait matches the names of custom traits.
var CustomTrait = regexp.MustCompile(`^CUSTOM_[A-Z0-9_]+$`)

// ProviderSpec is what a provider should be.
type ProviderSpec struct {
	Name        string
	Inventories []InventorySpec
	Traits      []string
	Aggregates  []string
}

// Brought says what BringProvider did.
type Brought int

// The outcomes of BringProvider.
const (
	Unchanged Brought = iota
	Changed
	Created
)

// BringProvider makes a provider what it should be. It creates the provider, and custom classes and traits that are
// missing; standard traits that it does not know are left out.
func (t *Tx) BringProvider(uuid string, want ProviderSpec) (Brought, error) {
	done := Changed
	v := t.whole(uuid)
	if v == nil {
		done = Created
		if _, _, err := t.CreateProvider(uuid, want.Name, ""); err != nil {
			return done, err
		}
		v = t.view(uuid)
	}
	err := t.bring(v, want)
	if t.writes() == 0 {
		done = Unchanged
	}
	return done, err
}

func (t *Tx) bring(v *providerView, want ProviderSpec) error {
	if v.Name != want.Name {
		if t.owner(want.Name) != "" {
			return conflict(CodeDuplicateName, "Conflicting resource provider %s already exists.", want.Name)
		}
		t.rename(v, want.Name)
		v.Updated = t.now
	}
	if !t.hasInventories(v, want.Inventories) {
		list, err := t.createAndResolve(want.Inventories)
		if err != nil {
			return err
		}
		if err := t.keepsUsed(v, list); err != nil {
			return conflict(CodeInventoryInUse, "update conflict: %v", err)
		}
		t.setInventories(v, list)
	}
	if err := t.bringTraits(v, want.Traits); err != nil {
		return err
	}
	aggregates := slices.Sorted(slices.Values(want.Aggregates))
	if !slices.Equal(aggregates, slices.Sorted(slices.Values(v.Aggregates))) {
		v.Aggregates, v.Updated, v.write = aggregates, t.now, true
		v.bump()
	}
	return nil
}

// createAndResolve finds the classes of inventories, and creates custom ones that are missing.
func (t *Tx) createAndResolve(specs []InventorySpec) ([]Inventory, error) {
	for _, s := range specs {
		if t.class(s.Name) != nil || !strings.HasPrefix(s.Name, "CUSTOM_") {
			continue
		}
		if len(s.Name) > 255 {
			return nil, invalid("The class %.20s... is longer than 255 characters", s.Name)
		}
		if _, err := t.EnsureClass(s.Name); err != nil {
			return nil, err
		}
	}
	list, err := t.resolve(specs)
	if err != nil {
		return nil, invalid("Unknown resource class in inventory: %v", err)
	}
	return list, nil
}

// hasInventories tells whether a provider has these inventories and no others.
func (t *Tx) hasInventories(v *providerView, specs []InventorySpec) bool {
	for _, s := range specs {
		c := t.class(s.Name)
		if c == nil {
			return false
		}
		s.Inventory.Class = c.id
		if have := v.Inventory(c.id); have == nil || *have != s.Inventory {
			return false
		}
	}
	return len(specs) == len(v.Inventories)
}

// bringTraits gives a provider these traits, and creates custom ones that are missing.
func (t *Tx) bringTraits(v *providerView, names []string) error {
	var ids []ID
	var held []*symbolView
	for _, name := range names {
		if CustomTrait.MatchString(name) {
			if _, _, err := t.EnsureTrait(name); err != nil {
				return err
			}
		}
		if trait := t.trait(name); trait != nil {
			ids, held = insertID(ids, trait.id), append(held, trait)
		}
	}
	if slices.Equal(ids, v.Traits) {
		return nil
	}
	for _, trait := range held {
		trait.hold()
	}
	t.setTraits(v, ids)
	return nil
}
