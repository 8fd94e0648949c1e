package cluster

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// Parameter describes a parameter that a request for a cluster may give.
type Parameter struct {
	Name        string   `json:"name"`
	Type        string   `json:"type"`
	Required    bool     `json:"required"`          // no source but the request has a value
	Default     any      `json:"default,omitempty"` // absent if hidden
	Allowed     string   `json:"allowed,omitempty"` // the limits that the template states, in words
	Description string   `json:"description,omitempty"`
	Hidden      bool     `json:"hidden,omitempty"`
	Sites       []string `json:"sites"` // sites whose implementation declares the parameter like this
}

// declaration is a parameter in the text of an implementation. All types of sites share these fields.
type declaration struct {
	Type        string       `yaml:"type"`
	Default     any          `yaml:"default"`
	Required    bool         `yaml:"required"` // at sites of type croft, where there are no defaults
	Description string       `yaml:"description"`
	Hidden      bool         `yaml:"hidden"`
	Constraints []constraint `yaml:"constraints"`
}

// constraint is a limit of a parameter in a template of Heat.
type constraint struct {
	Range   *limits `yaml:"range"`
	Length  *limits `yaml:"length"`
	Values  []any   `yaml:"allowed_values"`
	Pattern string  `yaml:"allowed_pattern"`
}

type limits struct {
	Min any `yaml:"min"`
	Max any `yaml:"max"`
}

// RequestParameters returns the parameters that a request may give, by name. It reads the newest enabled implementation
// of each site, whose defaults count where the template has none. Parameters that differ between sites are listed once
// for each form.
func RequestParameters(all []Implementation, sites []Site) []Parameter {
	defaults := make(map[string]map[string]any)
	for _, s := range sites {
		defaults[s.Name] = s.Defaults
	}
	newest := make(map[string]Implementation)
	for _, i := range all {
		if i.Enabled && i.Revision > newest[i.Site].Revision {
			newest[i.Site] = i
		}
	}
	list := []Parameter{}
	for _, site := range slices.Sorted(maps.Keys(newest)) {
		for _, p := range newest[site].parameters(defaults[site]) {
			same := slices.IndexFunc(list, func(have Parameter) bool { return have.equals(p) })
			if same < 0 {
				list, same = append(list, p), len(list)
			}
			list[same].Sites = append(list[same].Sites, site)
		}
	}
	slices.SortStableFunc(list, func(a, b Parameter) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// parameters returns the parameters of one implementation that a request may give.
func (i Implementation) parameters(ofSite map[string]any) (list []Parameter) {
	var t struct {
		Appliance  string                 `yaml:"appliance"` // at sites of type croft
		Parameters map[string]declaration `yaml:"parameters"`
	}
	if yaml.Unmarshal([]byte(i.Template), &t) != nil {
		return nil // the driver of the site refused such a text, or reads it differently
	}
	filled := []string{ParamSize, ParamCluster, ParamRemoved, ParamKeys, ParamAllowedIP}
	if i.Image != "" {
		filled = append(filled, ParamImage)
	}
	for _, name := range slices.Sorted(maps.Keys(t.Parameters)) {
		d := t.Parameters[name]
		if slices.Contains(filled, name) {
			continue
		}
		if t.Appliance == "" {
			d.Required = d.Default == nil
		}
		for _, values := range []map[string]any{i.Parameters, ofSite} {
			if value, is := values[name]; is {
				d.Default, d.Required = value, false
				break
			}
		}
		p := Parameter{Name: name, Type: cmp.Or(d.Type, "string"), Required: d.Required, Default: d.Default,
			Allowed: allowed(d.Constraints), Description: d.Description, Hidden: d.Hidden || Hidden(name)}
		if p.Hidden {
			p.Default = nil
		}
		list = append(list, p)
	}
	return list
}

// DefaultText writes the default for a table.
func (p Parameter) DefaultText() string {
	switch d := p.Default.(type) {
	case nil:
		return ""
	case string:
		return d
	case map[string]any, []any:
		text, err := json.Marshal(d)
		if err == nil {
			return string(text)
		}
	}
	return fmt.Sprint(p.Default)
}

func (p Parameter) equals(other Parameter) bool {
	p.Sites, other.Sites = nil, nil
	return fmt.Sprintf("%+v", p) == fmt.Sprintf("%+v", other)
}

// allowed writes constraints in words.
func allowed(all []constraint) string {
	var words []string
	for _, c := range all {
		if c.Range != nil {
			words = append(words, c.Range.String())
		}
		if c.Length != nil {
			words = append(words, "length "+c.Length.String())
		}
		if len(c.Values) > 0 {
			var values []string
			for _, v := range c.Values {
				values = append(values, fmt.Sprint(v))
			}
			words = append(words, strings.Join(values, ", "))
		}
		if c.Pattern != "" {
			words = append(words, "matches "+c.Pattern)
		}
	}
	return strings.Join(words, "; ")
}

// String writes the limits in words.
func (l limits) String() string {
	switch {
	case l.Max == nil:
		return fmt.Sprintf("%v or more", l.Min)
	case l.Min == nil:
		return fmt.Sprintf("at most %v", l.Max)
	}
	return fmt.Sprintf("%v to %v", l.Min, l.Max)
}
