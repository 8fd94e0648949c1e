package ledger

import "slices"

// NoClass says that a resource class does not exist.
func NoClass(name string) error { return notFound("No such resource class %s.", name) }

// CreateClass creates a custom class.
func (t *Tx) CreateClass(name string) error {
	if t.class(name) != nil {
		return conflict("", "Conflicting resource class already exists: %s", name)
	}
	_, err := t.EnsureClass(name)
	return err
}

// EnsureClass creates a custom class unless it exists, and tells whether it did.
func (t *Tx) EnsureClass(name string) (created bool, err error) {
	if t.class(name) != nil {
		return false, nil
	}
	if err := t.roomForClass(); err != nil {
		return false, err
	}
	t.createClass(name)
	return true, nil
}

// RenameClass renames a custom class, in inventories and allocations too.
func (t *Tx) RenameClass(from, to string) error {
	c := t.class(from)
	switch {
	case c == nil:
		return NoClass(from)
	case c.Standard:
		return invalid("Cannot update standard resource class %s", from)
	case from == to:
		return nil
	case t.class(to) != nil:
		return conflict("", "Resource class already exists: %s", to)
	}
	t.createClass(to)
	t.moveClass(c.id, t.classes[to].id)
	t.removeClass(c)
	return nil
}

// moveClass replaces a class in all inventories and allocations. A concurrent new use of the old class writes its
// entry, so its removal fails.
func (t *Tx) moveClass(from, to ID) {
	for _, uuid := range t.known() {
		v, _ := t.look(uuid)
		if !v.exists || v.Inventory(from) == nil {
			continue
		}
		p := t.provider(uuid)
		p.Inventories = slices.Clone(p.Inventories)
		p.Inventory(from).Class = to
		sortInventories(p.Inventories)
		p.write, p.writeGeneration = true, true
		for c := range t.holders(uuid) {
			t.moveConsumer(t.consumer(c), from, to)
		}
	}
}

func (t *Tx) moveConsumer(c *consumerView, from, to ID) {
	if c == nil {
		return
	}
	list := slices.Clone(c.Allocations)
	for i := range list {
		if list[i].Class == from {
			list[i].Class = to
		}
	}
	t.allocate(c, list)
}

func (t *Tx) classInUse(c *symbolView) bool {
	n := 0
	if x := t.base.classes.Get(c.Name); x != nil {
		n = x.Users
	}
	return t.uses(n, func(p *ProviderData) bool { return p.Inventory(c.id) != nil }) > 0
}

// DeleteClass deletes a custom class without users.
func (t *Tx) DeleteClass(name string) error {
	c := t.class(name)
	switch {
	case c == nil:
		return NoClass(name)
	case c.Standard:
		return invalid("Error in delete resource class: Cannot delete standard resource class %s.", c.Name)
	case t.classInUse(c):
		const text = "Error in delete resource class: Cannot delete resource class %s. Class is in use in inventory."
		return conflict("", text, c.Name)
	}
	t.removeClass(c)
	return nil
}
