package objects

import (
	"maps"
	"slices"

	"croft/tenant/access"
)

// allowed is a caller's rights to a property.
type allowed struct{ read, write bool }

// permissionsOf returns the permissions of a key: its own if it has any, else the permissions of the definition.
func (d Definition) permissionsOf(key string) []Permission {
	if own := d.Properties[key].Permissions; len(own) > 0 {
		return own
	}
	return d.Permissions
}

// allowed returns the rights to a property of a caller who sees the object. Of the permissions that match the caller,
// only the most specific ones count (project and role before role before project before neither), and their grants are
// combined. If permissions are set and none matches, nothing is allowed. If none are set, every caller who sees the
// object may read the property, and writers may write it. A partition-admin may always read.
func (d Definition) allowed(c access.Caller, kind Kind, key string) allowed {
	all := d.permissionsOf(key)
	a := allowed{read: true, write: writes(c, kind)}
	if len(all) > 0 {
		a = resolve(all, c)
	}
	a.read = a.read || c.Operator()
	return a
}

// writes reports whether a caller who sees an object may write to it if no permissions are set.
func writes(c access.Caller, kind Kind) bool {
	return c.Operator() || kind.InProject() && (c.Has(access.Member) || c.Has(access.ProjectAdmin))
}

func resolve(all []Permission, c access.Caller) (a allowed) {
	best := -1
	for _, p := range all {
		if p.Project != "" && p.Project != c.Project || p.Role != "" && !c.Has(p.Role) {
			continue
		}
		exactness := 0
		if p.Project != "" {
			exactness++
		}
		if p.Role != "" {
			exactness += 2
		}
		if exactness < best {
			continue
		}
		if exactness > best {
			best, a = exactness, allowed{}
		}
		a.read = a.read || p.Value == Read || p.Value == ReadWrite
		a.write = a.write || p.Value == Write || p.Value == ReadWrite
	}
	return a
}

// visible returns the part of an object that a caller may read. If nothing of it can be read, its generation is 0, as
// if it did not exist.
func (d Definition) visible(c access.Caller, o Object) Object {
	o = o.clone()
	maps.DeleteFunc(o.Properties, func(key string, _ Value) bool { return !d.allowed(c, o.Kind, key).read })
	if o.Empty() {
		o.Generation = 0
	}
	return o
}

// known lists the keys in the definition that the caller may read or write, to propose them for unknown keys.
func (d Definition) known(c access.Caller, kind Kind) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(d.Properties)), func(key string) bool {
		return d.allowed(c, kind, key) == allowed{}
	})
}
