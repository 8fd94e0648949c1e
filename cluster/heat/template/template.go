// Package template validates Heat templates before they are stored, and finds their parameters and outputs. It resolves
// nothing: it opens no file, calls no address and follows no alias. Accepted templates are sent to Heat unchanged.
package template

import (
	"strings"

	"gopkg.in/yaml.v3"

	"croft"
	"croft/cluster"
)

// The bounds of a template, in addition to cluster.MaxTemplate.
const (
	mostDepth = 64
	mostNodes = 50000
)

// The parameters and outputs that have a meaning for croft.
const (
	ClusterSize = "cluster_size" // number of slaves
	Removed     = "removed"      // indexes of slaves that were removed by name
	MasterIP    = "master_ip"
	Hosts       = "hosts"
	WorkerIPs   = "worker_ips"
)

// Check validates a template. Invalid, with the line.
func Check(text string) (cluster.Contract, error) {
	if len(text) > cluster.MaxTemplate {
		return cluster.Contract{}, croft.Errorf(croft.Invalid, "the template has %d KiB; at most %d are permitted",
			len(text)>>10, cluster.MaxTemplate>>10)
	}
	root, err := parse(text)
	if err != nil {
		return cluster.Contract{}, err
	}
	if err := refuse(root); err != nil {
		return cluster.Contract{}, err
	}
	sections, err := sectionsOf(root)
	if err != nil {
		return cluster.Contract{}, err
	}
	c := cluster.Contract{}
	if c.Declared, err = declared(sections["parameters"]); err != nil {
		return cluster.Contract{}, err
	}
	if err := checkResources(sections["resources"]); err != nil {
		return cluster.Contract{}, err
	}
	_, asks := c.Declared[Removed]
	c.RemoveNamed = asks && removesNamed(sections["resources"])
	if err := checkOutputs(sections["outputs"]); err != nil {
		return c, err
	}
	return c, checkReferences(scopeOf(c.Declared, sections["resources"]), sections)
}

// known are the sections of a template.
var known = []string{"heat_template_version", "description", "parameter_groups", "parameters", "resources", "outputs",
	"conditions"}

// sectionsOf returns the sections by name, and checks that the required ones exist.
func sectionsOf(root *yaml.Node) (map[string]*yaml.Node, error) {
	sections := map[string]*yaml.Node{}
	for key, value := range pairs(root) {
		if !contains(known, key.Value) {
			return nil, wrong(key, "%.60q is not a section of a Heat template; there are %s", key.Value,
				strings.Join(known, ", "))
		}
		sections[key.Value] = value
	}
	version, there := sections["heat_template_version"]
	switch {
	case !there:
		return nil, wrong(root, "heat_template_version is missing, such as 2016-10-14")
	case version.Kind != yaml.ScalarNode || version.Value == "":
		return nil, wrong(version, "heat_template_version is a date or the name of a release, such as 2016-10-14")
	}
	for _, name := range []string{"resources", "outputs"} {
		section, there := sections[name]
		switch {
		case !there:
			return nil, wrong(root, "the section %s is missing", name)
		case section.Kind != yaml.MappingNode:
			return nil, wrong(section, "%s is a mapping of names", name)
		}
	}
	return sections, nil
}

// checkOutputs checks that the address of the master is an output.
func checkOutputs(outputs *yaml.Node) error {
	for key, output := range pairs(outputs) {
		if output.Kind != yaml.MappingNode || field(output, "value") == nil ||
			key.Value == MasterIP && empty(field(output, "value")) {
			return wrong(key, "output %.60q has no value", key.Value)
		}
	}
	if field(outputs, MasterIP) == nil {
		return wrong(outputs, "outputs has no master_ip, the address of the master")
	}
	return nil
}

// declared reads the parameters.
func declared(section *yaml.Node) (map[string]cluster.Declared, error) {
	all := map[string]cluster.Declared{}
	if section == nil || empty(section) {
		return all, nil
	}
	if section.Kind != yaml.MappingNode {
		return nil, wrong(section, "parameters is a mapping of names")
	}
	for key, p := range pairs(section) {
		kind := field(p, "type")
		if kind == nil || kind.Kind != yaml.ScalarNode || !contains(cluster.ParameterTypes, kind.Value) {
			return nil, wrong(key, "parameter %.60q has no type; there are %s", key.Value,
				strings.Join(cluster.ParameterTypes, ", "))
		}
		d := cluster.Declared{Type: kind.Value, Default: field(p, "default") != nil, Hidden: cluster.Hidden(key.Value)}
		if h := field(p, "hidden"); h != nil && truth(h.Value) {
			d.Hidden = true
		}
		all[key.Value] = d
	}
	if size, there := all[ClusterSize]; there && size.Type != "number" && size.Type != "string" {
		return nil, wrong(section, "the parameter cluster_size is a number")
	}
	if removed, there := all[Removed]; there && removed.Type != "json" && removed.Type != "comma_delimited_list" {
		return nil, wrong(section, "the parameter removed is json, a list of indexes")
	}
	return all, nil
}

// truth parses a boolean as Heat does.
func truth(text string) bool {
	return contains([]string{"true", "t", "yes", "y", "on", "1"}, strings.ToLower(text))
}
