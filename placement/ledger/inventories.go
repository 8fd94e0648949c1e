package ledger

import (
	"slices"
	"strings"
)

// InventorySpec is an inventory of a class that may not exist. The ID in it is ignored.
type InventorySpec struct {
	Name string // of the class
	Inventory
}

// CheckCapacity refuses inventories without capacity. exhausted: reserved may equal total.
func CheckCapacity(provider string, exhausted bool, specs ...InventorySpec) error {
	for _, s := range specs {
		words := "greater than or equal to"
		switch c := s.Capacity(); {
		case c > 0 || exhausted && c == 0:
			continue
		case exhausted:
			words = "greater than"
		}
		const text = "Invalid inventory for '%s' on resource provider '%s'. The reserved value is %s total."
		return invalid(text, s.Name, provider, words)
	}
	return nil
}

// resolve sets the ID of the inventory's class, and keeps the class from being deleted.
func (s InventorySpec) resolve(c *symbolView) Inventory {
	c.hold()
	i := s.Inventory
	i.Class = c.id
	return i
}

// resolve looks up the classes of inventories.
func (t *Tx) resolve(specs []InventorySpec) ([]Inventory, error) {
	list := make([]Inventory, 0, len(specs))
	for _, s := range specs {
		c := t.classes.get(s.Name)
		if c == nil {
			return nil, invalid("No such resource class %s.", s.Name)
		}
		list = append(list, s.resolve(c))
	}
	return list, nil
}

// CreateInventory adds an inventory to a provider.
func (t *Tx) CreateInventory(uuid string, s InventorySpec) (p ProviderData, err error) {
	v, c := t.providers.get(uuid), t.classes.get(s.Name)
	switch {
	case v == nil:
		return p, noProvider(uuid)
	case c == nil:
		return p, invalid("Unable to create inventory for resource provider %s: No such resource class %s.", uuid,
			s.Name)
	case v.Inventory(c.id) != nil:
		const text = "Update conflict: Inventory for '%s' on resource provider '%s' already exists."
		return p, conflict(CodeConcurrentUpdate, text, s.Name, uuid)
	}
	t.providers.setInventories(v, append([]Inventory{s.resolve(c)}, v.Inventories...))
	return v.ProviderData, nil
}

// atGeneration returns a provider. It is an error if the provider is not at the generation, or a new inventory has no
// capacity.
func (t *Tx) atGeneration(uuid string, generation int64, exhausted bool, specs ...InventorySpec) (*providerView,
	error) {
	v := t.providers.get(uuid)
	if v == nil {
		return nil, noProvider(uuid)
	}
	if generation != v.Generation {
		return nil, conflict(CodeConcurrentUpdate, "resource provider generation conflict")
	}
	if err := CheckCapacity(uuid, exhausted, specs...); err != nil {
		return nil, invalid("Unable to update inventory for resource provider %s: %v", uuid, err)
	}
	return v, nil
}

// SetInventories replaces the inventories of a provider at a generation. exhausted: see CheckCapacity.
func (t *Tx) SetInventories(uuid string, generation int64, exhausted bool, specs []InventorySpec) (p ProviderData,
	err error) {
	v, err := t.atGeneration(uuid, generation, exhausted, specs...)
	if err != nil {
		return p, err
	}
	list, err := t.resolve(specs)
	if err != nil {
		return p, invalid("Unknown resource class in inventory for resource provider %s: %v", uuid, err)
	}
	if err := t.keepsUsed(v, list); err != nil {
		return p, conflict(CodeInventoryInUse, "update conflict: %v", err)
	}
	t.providers.setInventories(v, list)
	return v.ProviderData, nil
}

// keepsUsed refuses a list without a class that has allocations.
func (t *Tx) keepsUsed(v *providerView, list []Inventory) error {
	kept := map[ID]bool{}
	for _, i := range list {
		kept[i.Class] = true
	}
	var lost []string
	for _, u := range v.Usage {
		if !kept[u.Class] {
			lost = append(lost, t.ClassName(u.Class))
		}
	}
	if len(lost) > 0 {
		return conflict("", "Inventory for '%s' on resource provider '%s' in use.", strings.Join(lost, ", "), v.UUID)
	}
	return nil
}

// DeleteInventories deletes all inventories of a provider.
func (t *Tx) DeleteInventories(uuid string) error {
	v := t.providers.get(uuid)
	if v == nil {
		return noProvider(uuid)
	}
	if err := t.keepsUsed(v, nil); err != nil {
		return conflict(CodeInventoryInUse, "%v", err)
	}
	t.providers.setInventories(v, nil)
	return nil
}

// UpdateInventory changes one inventory of a provider at a generation. exhausted: see CheckCapacity.
func (t *Tx) UpdateInventory(uuid string, generation int64, exhausted bool, s InventorySpec) (p ProviderData,
	err error) {
	v, err := t.atGeneration(uuid, generation, exhausted, s)
	if err != nil {
		return p, err
	}
	c := t.classes.get(s.Name)
	if c == nil {
		return p, NoClass(s.Name)
	}
	at := slices.IndexFunc(v.Inventories, func(i Inventory) bool { return i.Class == c.id })
	if at < 0 {
		const text = "No inventory record with resource class for resource provider %s: No inventory of class %s found."
		return p, invalid(text, uuid, s.Name)
	}
	list := slices.Clone(v.Inventories)
	list[at] = s.resolve(c)
	t.providers.setInventories(v, list)
	return v.ProviderData, nil
}

// DeleteInventory deletes one inventory of a provider.
func (t *Tx) DeleteInventory(uuid, class string) error {
	v := t.providers.get(uuid)
	if v == nil {
		return noProvider(uuid)
	}
	missing := "No such resource class " + class + "."
	if c := t.classes.get(class); c != nil {
		missing = "No inventory of class " + class + " found for delete"
		if v.Used(c.id) > 0 {
			const text = "Unable to delete inventory of class %s: Inventory for '%s' on resource provider '%s' in use."
			return conflict(CodeConcurrentUpdate, text, class, class, uuid)
		}
		rest := slices.DeleteFunc(slices.Clone(v.Inventories), func(i Inventory) bool { return i.Class == c.id })
		if len(rest) < len(v.Inventories) {
			t.providers.setInventories(v, rest)
			return nil
		}
	}
	return notFound("No inventory of class %s found for delete: %s", class, missing)
}
