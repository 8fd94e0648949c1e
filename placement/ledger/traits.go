package ledger

import (
	"slices"
	"strings"
)

// EnsureTrait creates a custom trait unless it exists. created: it did not exist; at is its time of creation.
func (t *Tx) EnsureTrait(name string) (created bool, at int64, err error) {
	v, created, err := t.traits.ensure(name)
	if err != nil {
		return false, 0, err
	}
	return created, v.Created, nil
}

// NoTrait returns the error for a trait that does not exist.
func NoTrait(name string) error { return notFound("No such trait(s): %s.", name) }

// DeleteTrait deletes a custom trait that has no users.
func (t *Tx) DeleteTrait(name string) error {
	v := t.traits.get(name)
	switch {
	case v == nil:
		return NoTrait(name)
	case v.Standard:
		return invalid("Cannot delete standard trait %s.", v.Name)
	case t.inUse(&t.traits, v):
		return conflict("", "The trait %s is in use by a resource provider.", v.Name)
	}
	t.traits.remove(v)
	return nil
}

// SetTraits replaces the traits of a provider at a generation.
func (t *Tx) SetTraits(uuid string, generation int64, names []string) (p ProviderData, err error) {
	v := t.providers.get(uuid)
	if v == nil {
		return p, noProvider(uuid)
	}
	if generation != v.Generation {
		return p, changedMeanwhile()
	}
	var ids []ID
	var missing []string
	for _, name := range names {
		if x := t.traits.get(name); x != nil {
			x.hold()
			ids = insertID(ids, x.id)
		} else if !slices.Contains(missing, name) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return p, invalid("No such trait %s", strings.Join(missing, ", "))
	}
	t.providers.setTraits(v, ids)
	return v.ProviderData, nil
}

// DeleteTraits removes all traits from a provider.
func (t *Tx) DeleteTraits(uuid string) error {
	v := t.providers.get(uuid)
	if v == nil {
		return noProvider(uuid)
	}
	t.providers.setTraits(v, nil)
	return nil
}
