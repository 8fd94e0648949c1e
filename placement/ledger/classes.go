package ledger

import "slices"

// NoClass returns the error for a resource class that does not exist.
func NoClass(name string) error { return notFound("No such resource class %s.", name) }

// CreateClass creates a custom class.
func (t *Tx) CreateClass(name string) error {
	created, err := t.EnsureClass(name)
	if err == nil && !created {
		return conflict("", "Conflicting resource class already exists: %s", name)
	}
	return err
}

// EnsureClass creates a custom class unless it exists. created: it did not exist.
func (t *Tx) EnsureClass(name string) (created bool, err error) {
	_, created, err = t.classes.ensure(name)
	return created, err
}

// RenameClass renames a custom class, also in inventories and allocations. It fails if the old class gets a new user
// concurrently, because that writes the entry of the class.
func (t *Tx) RenameClass(from, to string) error {
	c := t.classes.get(from)
	switch {
	case c == nil:
		return NoClass(from)
	case c.Standard:
		return invalid("Cannot update standard resource class %s", from)
	case from == to:
		return nil
	case t.classes.get(to) != nil:
		return conflict("", "Resource class already exists: %s", to)
	}
	renamed := t.classes.create(to)
	for _, uuid := range t.providers.all() {
		v := t.providers.look(uuid)
		if !v.exists || v.Inventory(c.id) == nil {
			continue
		}
		p := t.providers.whole(uuid)
		p.Inventories = slices.Clone(p.Inventories)
		p.Inventory(c.id).Class = renamed.id
		sortInventories(p.Inventories)
		p.write, p.writeGeneration = true, true
		for holder := range t.consumers.holders(uuid) {
			t.reclass(holder, c.id, renamed.id)
		}
	}
	t.classes.remove(c)
	return nil
}

// reclass replaces a class in the allocations of a consumer.
func (t *Tx) reclass(consumer string, from, to ID) {
	c := t.consumers.view(consumer)
	if len(c.Allocations) == 0 {
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

// DeleteClass deletes a custom class that has no users.
func (t *Tx) DeleteClass(name string) error {
	c := t.classes.get(name)
	switch {
	case c == nil:
		return NoClass(name)
	case c.Standard:
		return invalid("Error in delete resource class: Cannot delete standard resource class %s.", c.Name)
	case t.inUse(&t.classes, c):
		const text = "Error in delete resource class: Cannot delete resource class %s. Class is in use in inventory."
		return conflict("", text, c.Name)
	}
	t.classes.remove(c)
	return nil
}
