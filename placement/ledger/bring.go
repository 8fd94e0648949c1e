package ledger

import (
	"slices"
	"strings"

	"croft/internal/lazyregexp"
)

// CustomTrait matches valid names of custom traits.
var CustomTrait = lazyregexp.New(`^CUSTOM_[A-Z0-9_]+$`)

// ProviderSpec is the wanted state of a provider.
type ProviderSpec struct {
	Name        string
	Inventories []InventorySpec
	Traits      []string
	Aggregates  []string
}

// Brought is the outcome of BringProvider.
type Brought int

// Outcomes of BringProvider.
const (
	Unchanged Brought = iota
	Changed
	Created
)

// BringProvider creates or changes a provider so that it matches want. Missing custom classes and traits are created;
// unknown standard traits are left out.
func (t *Tx) BringProvider(uuid string, want ProviderSpec) (Brought, error) {
	done := Changed
	v := t.providers.whole(uuid)
	if v == nil {
		done = Created
		if _, _, err := t.CreateProvider(uuid, want.Name, ""); err != nil {
			return done, err
		}
		v = t.providers.view(uuid)
	}
	b := bringing{t, v}
	if err := b.name(want.Name); err != nil {
		return done, err
	}
	if err := b.inventories(want.Inventories); err != nil {
		return done, err
	}
	if err := b.traits(want.Traits); err != nil {
		return done, err
	}
	if b.aggregates(want.Aggregates); t.writes() == 0 {
		done = Unchanged
	}
	return done, nil
}

// bringing is one call of BringProvider.
type bringing struct {
	tx       *Tx
	provider *providerView
}

func (b bringing) name(want string) error {
	if b.provider.Name == want {
		return nil
	}
	if b.tx.providers.owner(want) != "" {
		return conflict(CodeDuplicateName, "Conflicting resource provider %s already exists.", want)
	}
	b.tx.providers.rename(b.provider, want)
	b.provider.Updated = b.tx.basis.now
	return nil
}

// inventories sets the provider's inventories, and creates missing custom classes.
func (b bringing) inventories(want []InventorySpec) error {
	if b.has(want) {
		return nil
	}
	for _, s := range want {
		if b.tx.classes.get(s.Name) != nil || !strings.HasPrefix(s.Name, "CUSTOM_") {
			continue
		}
		if len(s.Name) > 255 {
			return invalid("The class %.20s... is longer than 255 characters", s.Name)
		}
		if _, err := b.tx.EnsureClass(s.Name); err != nil {
			return err
		}
	}
	list, err := b.tx.resolve(want)
	if err != nil {
		return invalid("Unknown resource class in inventory: %v", err)
	}
	if err := b.tx.keepsUsed(b.provider, list); err != nil {
		return conflict(CodeInventoryInUse, "update conflict: %v", err)
	}
	b.tx.providers.setInventories(b.provider, list)
	return nil
}

// has reports whether the provider has exactly these inventories.
func (b bringing) has(specs []InventorySpec) bool {
	for _, s := range specs {
		c := b.tx.classes.get(s.Name)
		if c == nil {
			return false
		}
		s.Inventory.Class = c.id
		if have := b.provider.Inventory(c.id); have == nil || *have != s.Inventory {
			return false
		}
	}
	return len(specs) == len(b.provider.Inventories)
}

// traits sets the provider's traits, and creates missing custom traits.
func (b bringing) traits(want []string) error {
	var ids []ID
	var held []*symbolView
	for _, name := range want {
		if CustomTrait.MatchString(name) {
			if _, _, err := b.tx.traits.ensure(name); err != nil {
				return err
			}
		}
		if trait := b.tx.traits.get(name); trait != nil {
			ids, held = insertID(ids, trait.id), append(held, trait)
		}
	}
	if slices.Equal(ids, b.provider.Traits) {
		return nil
	}
	for _, trait := range held {
		trait.hold()
	}
	b.tx.providers.setTraits(b.provider, ids)
	return nil
}

func (b bringing) aggregates(want []string) {
	v, sorted := b.provider, slices.Sorted(slices.Values(want))
	if slices.Equal(sorted, slices.Sorted(slices.Values(v.Aggregates))) {
		return
	}
	v.Aggregates, v.Updated, v.write = sorted, b.tx.basis.now, true
	v.bump()
}
