package cluster

import (
	"maps"
	"slices"

	"croft"
	"croft/internal/nearest"
)

// Filling is the source of the values of a template's parameters.
type Filling struct {
	Cluster        croft.ClusterID
	Name           string // of the cluster; empty: not known
	Slaves         int
	Removed        []int          // indexes of slaves that were removed by name
	Image          string         // the reference at the site, if the implementation names an image
	AllowedIP      string         // CIDR of this server; empty: not known
	Keys           []string       // public SSH keys of the users who may log in
	Given          map[string]any // in the request, including hidden ones
	Implementation Implementation
	Site           Site
}

// The parameters that the manager fills if the template declares them.
const (
	ParamSize      = "cluster_size" // number of slaves, without the master
	ParamCluster   = "cluster_id"
	ParamRemoved   = "removed"
	ParamImage     = "image"
	ParamAllowedIP = "allowed_ip"
	ParamKeys      = "authorized_keys" // a list of public SSH keys
)

// ParamName gets the common prefix of the machine names of the cluster, unless another source has a value: templates
// had a parameter of this name before the manager filled it.
const ParamName = "cluster_name"

// fallback returns the values that apply if no other source has one.
func (f Filling) fallback() map[string]any {
	if f.Name == "" {
		return nil
	}
	return map[string]any{ParamName: machinePrefix(f.Name, f.Cluster)}
}

// own returns the values that the manager sets; they override all others.
func (f Filling) own() map[string]any {
	removed := []any{}
	for _, i := range f.Removed {
		removed = append(removed, i)
	}
	keys := []any{}
	for _, key := range f.Keys {
		keys = append(keys, key)
	}
	own := map[string]any{ParamSize: f.Slaves, ParamCluster: string(f.Cluster), ParamRemoved: removed, ParamKeys: keys}
	if f.Image != "" {
		own[ParamImage] = f.Image
	}
	if f.AllowedIP != "" {
		own[ParamAllowedIP] = f.AllowedIP
	}
	return own
}

// Fill returns the values for a template, and the sorted names of the hidden ones. The first of these sources that has
// a value wins: the manager, the request, the implementation, the defaults of the site, and the name of the cluster.
// Values for undeclared parameters are left out. Invalid: the request gives a parameter that is not declared or that
// the manager fills; no source has a value for a parameter without a default; a value has the wrong type.
func Fill(c Contract, f Filling) (map[string]any, []string, error) {
	own := f.own()
	if err := checkGiven(c, f.Given, own); err != nil {
		return nil, nil, err
	}
	values := map[string]any{}
	var hidden []string
	for _, name := range slices.Sorted(maps.Keys(c.Declared)) {
		declared := c.Declared[name]
		value, found := first(name, own, f.Given, f.Implementation.Parameters, f.Site.Defaults,
			f.fallback())
		if !found && declared.Default {
			continue
		}
		if !found {
			return nil, nil, croft.Errorf(croft.Invalid, "parameter %s of the template is required, and nothing "+
				"sets it",
				name)
		}
		converted, ok := convert(declared.Type, value)
		if !ok {
			return nil, nil, croft.Errorf(croft.Invalid, "parameter %s of the template is a %s, which %s is not", name,
				declared.Type, shown(declared, name, value))
		}
		values[name] = converted
		if declared.hides(name) {
			hidden = append(hidden, name)
		}
	}
	return values, hidden, nil
}

// hides reports whether the value of a declared parameter must be stored sealed.
func (d Declared) hides(name string) bool { return d.Hidden || Hidden(name) }

// HiddenIn returns the sorted names of the given parameters that must be stored sealed, because of their names or
// because a contract says so.
func HiddenIn(given map[string]any, contracts ...Contract) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(given)) {
		said := slices.ContainsFunc(contracts, func(c Contract) bool { return c.Declared[name].Hidden })
		if said || Hidden(name) {
			names = append(names, name)
		}
	}
	return names
}

// checkGiven rejects parameters that a request must not give.
func checkGiven(c Contract, given, own map[string]any) error {
	may := slices.Sorted(maps.Keys(c.Declared))
	may = slices.DeleteFunc(may, func(name string) bool { _, filled := own[name]; return filled })
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if _, filled := own[name]; filled {
			return croft.Errorf(croft.Invalid, "parameter %s is filled by the manager, and cannot be given", name)
		}
		if _, declared := c.Declared[name]; !declared {
			return croft.Errorf(croft.Invalid, "the template declares no parameter %.80q%s", name, nearest.Hint(name,
				may))
		}
	}
	return nil
}

func first(name string, sources ...map[string]any) (any, bool) {
	for _, source := range sources {
		if value, found := source[name]; found && value != nil {
			return value, true
		}
	}
	return nil, false
}
