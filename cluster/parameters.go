package cluster

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"croft"
	"croft/internal/nearest"
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

// ParameterTypes are the types of parameters in Heat; all sites support the same ones.
var ParameterTypes = []string{"string", "number", "boolean", "json", "comma_delimited_list"}

// convert converts a value to the type that the template declares; false: the value has no such type. Numbers and
// booleans may be given as text, as on a command line.
func convert(kind string, value any) (any, bool) {
	switch kind {
	case "string":
		return text(value)
	case "number":
		return number(value)
	case "boolean":
		return truth(value)
	case "json":
		return structure(value)
	case "comma_delimited_list":
		return list(value)
	}
	return value, true
}

func text(value any) (any, bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	}
	n, ok := number(value)
	if !ok {
		return nil, false
	}
	return fmt.Sprint(n), true
}

// number returns an int for a whole number, so that it is written without a decimal point.
func number(value any) (any, bool) {
	var f float64
	switch v := value.(type) {
	case int:
		return v, true
	case int64:
		return int(v), true
	case float64:
		f = v
	case json.Number:
		return number(string(v))
	case string:
		if n, err := strconv.Atoi(v); err == nil {
			return n, true
		}
		parsed, err := strconv.ParseFloat(v, 64)
		if err != nil {
			return nil, false
		}
		f = parsed
	default:
		return nil, false
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, false
	}
	if f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return int(f), true
	}
	return f, true
}

var (
	yes = []string{"true", "t", "1", "on", "y", "yes"}
	no  = []string{"false", "f", "0", "off", "n", "no"}
)

func truth(value any) (any, bool) {
	if v, ok := value.(bool); ok {
		return v, true
	}
	word := strings.ToLower(fmt.Sprint(value))
	return slices.Contains(yes, word), slices.Contains(yes, word) || slices.Contains(no, word)
}

// structure accepts a mapping or a list, or JSON text of one.
func structure(value any) (any, bool) {
	if s, ok := value.(string); ok {
		var parsed any
		if json.Unmarshal([]byte(s), &parsed) != nil {
			return nil, false
		}
		value = parsed
	}
	switch value.(type) {
	case map[string]any, []any:
		return value, true
	}
	return nil, false
}

// list accepts text with commas, or a list of scalars.
func list(value any) (any, bool) {
	if s, ok := value.(string); ok {
		return s, true
	}
	items, ok := value.([]any)
	if !ok {
		return nil, false
	}
	var all []string
	for _, item := range items {
		s, ok := text(item)
		if !ok || strings.Contains(s.(string), ",") {
			return nil, false
		}
		all = append(all, s.(string))
	}
	return strings.Join(all, ","), true
}

// shown quotes a value in an error, unless it is secret.
func shown(d Declared, name string, value any) string {
	if d.hides(name) {
		return masked
	}
	s, err := json.Marshal(value)
	if err != nil {
		return "what is given"
	}
	return fmt.Sprintf("%.80s", s)
}
