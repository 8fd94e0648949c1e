package croft

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"croft"
	"croft/cluster"
)

// text is an implementation at a site of type croft, in YAML.
type text struct {
	Appliance string `yaml:"appliance"` // of the other cloud
	// of the other cloud, each of which may be chosen; empty: all
	Sites       []string             `yaml:"sites"`
	RemoveNamed bool                 `yaml:"remove_named"` // slaves can be removed by name there
	Parameters  map[string]parameter `yaml:"parameters"`   // the parameters that are passed on
}

type parameter struct {
	Type     string `yaml:"type"`     // a type of Heat; string by default
	Required bool   `yaml:"required"` // the request has to give a value
	Hidden   bool   `yaml:"hidden"`
}

func parse(i cluster.Implementation) (t text, err error) {
	if i.Template == "" {
		return t, croft.Errorf(croft.Invalid, "at a site of type croft, an implementation is a text that names an "+
			"appliance of the other cloud, such as appliance: slurm")
	}
	d := yaml.NewDecoder(strings.NewReader(i.Template))
	d.KnownFields(true)
	if err := d.Decode(&t); err != nil {
		return t, croft.Errorf(croft.Invalid, "the text is none for a site of type croft: %w", err)
	}
	if err := cluster.CheckName("an appliance of the other cloud", t.Appliance); err != nil {
		return t, err
	}
	return t, nil
}

// Check implements cluster.Driver. The other cloud checks only when it is asked for a cluster whether it has the
// appliance.
func (*Driver) Check(_ context.Context, i cluster.Implementation) (cluster.Contract, error) {
	t, err := parse(i)
	if err != nil {
		return cluster.Contract{}, err
	}
	c := cluster.Contract{RemoveNamed: t.RemoveNamed, Declared: map[string]cluster.Declared{
		cluster.ParamKeys: {Type: "json", Default: true}}}
	for name, p := range t.Parameters {
		kind := cmp.Or(p.Type, "string")
		if !slices.Contains(cluster.ParameterTypes, kind) {
			return c, croft.Errorf(croft.Invalid, "parameter %.80q has the type %.40q: use one of %s", name, kind,
				strings.Join(cluster.ParameterTypes, " "))
		}
		c.Declared[name] = cluster.Declared{Type: kind, Default: !p.Required, Hidden: p.Hidden}
	}
	return c, nil
}
