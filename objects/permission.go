package objects

import (
	"maps"
	"slices"

	"croft/access"
)

// allowed is what a caller may do with a property.
type allowed struct{ read, write bool }

// permissionsOf returns the permissions of a key: its own, or else those of the whole definition.
func (d Definition) permissionsOf(key string) []Permission {
	if own := d.Properties[key].Permissions; len(own) > 0 {
		return own
	}
	return d.Permissions
}

// allowed decides what a caller who sees an object may do with a property of it. Of the permissions that fit the
// caller, those count that fit most exactly (project and role before role before project before neither), and what
// they grant is added up. Where permissions are set and none fits, nothing is allowed; where none are set, whoever
// sees the object reads it and writers write it. A partition-admin always reads.
func (d Definition) allowed(c access.Caller, kind Kind, key string) allowed {
	all := d.permissionsOf(key)
	a := allowed{read: true, write: writes(c, kind)}
	if len(all) > 0 {
		a = resolve(all, c)
	}
	a.read = a.read || c.Operator()
	return a
}

// writes reports whether a caller who sees an object may write to it where no permissions are set.
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

// visible returns what a caller may read of an object. An object of which nothing can be read has generation 0, as
// if it did not exist.
func (d Definition) visible(c access.Caller, o Object) Object {
	o = o.clone()
	maps.DeleteFunc(o.Properties, func(key string, _ Value) bool { return !d.allowed(c, o.Kind, key).read })
	if o.Empty() {
		o.Generation = 0
	}
	return o
}

// known lists the keys that the definition names and the caller may read or write, to be proposed for others.
func (d Definition) known(c access.Caller, kind Kind) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(d.Properties)), func(key string) bool {
		return d.allowed(c, kind, key) == allowed{}
	})
}
