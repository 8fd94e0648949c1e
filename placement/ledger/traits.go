package ledger

import (
	"slices"
	"strings"
)

// EnsureTrait creates a custom trait unless it exists. It tells whether it did, and when the trait was created.
func (t *Tx) EnsureTrait(name string) (created bool, at int64, err error) {
	if t.trait(name) == nil {
		if err := t.roomForTrait(); err != nil {
			return false, 0, err
		}
		t.createTrait(name)
		created = true
	}
	return created, t.traits[name].Created, nil
}

// NoTrait says that a trait does not exist.
func NoTrait(name string) error { return notFound("No such trait(s): %s.", name) }

// DeleteTrait deletes a custom trait without users.
func (t *Tx) DeleteTrait(name string) error {
	v := t.trait(name)
	switch {
	case v == nil:
		return NoTrait(name)
	case v.Standard:
		return invalid("Cannot delete standard trait %s.", v.Name)
	case t.traitInUse(v):
		return conflict("", "The trait %s is in use by a resource provider.", v.Name)
	}
	t.removeTrait(v)
	return nil
}

func (t *Tx) traitInUse(v *symbolView) bool {
	n := 0
	if x := t.base.traits.Get(v.Name); x != nil {
		n = x.Users
	}
	return t.uses(n, func(p *ProviderData) bool { return hasID(p.Traits, v.id) }) > 0
}

// SetTraits replaces a provider's traits if it is at a generation.
func (t *Tx) SetTraits(uuid string, generation int64, names []string) (p ProviderData, err error) {
	v := t.provider(uuid)
	if v == nil {
		return p, noProvider(uuid)
	}
	if generation != v.Generation {
		return p, changedMeanwhile()
	}
	ids, err := t.traitIDs(names)
	if err != nil {
		return p, err
	}
	t.setTraits(v, ids)
	return v.ProviderData, nil
}

// DeleteTraits takes all traits from a provider.
func (t *Tx) DeleteTraits(uuid string) error {
	v := t.provider(uuid)
	if v == nil {
		return noProvider(uuid)
	}
	t.setTraits(v, nil)
	return nil
}

// traitIDs finds traits, and keeps them from being deleted.
func (t *Tx) traitIDs(names []string) ([]ID, error) {
	var ids []ID
	var missing []string
	for _, name := range names {
		if v := t.trait(name); v != nil {
			v.hold()
			ids = insertID(ids, v.id)
		} else if !slices.Contains(missing, name) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return nil, invalid("No such trait %s", strings.Join(missing, ", "))
	}
	return ids, nil
}

// setTraits replaces a provider's traits. Setting the same ones changes nothing.
func (t *Tx) setTraits(v *providerView, ids []ID) {
	if slices.Equal(ids, v.Traits) {
		return
	}
	v.Traits, v.Updated, v.write = ids, t.now, true
	v.bump()
}
