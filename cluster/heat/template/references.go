package template

import (
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"croft/cluster"
	"croft/internal/nearest"
)

// resourceKeys are the keys of a resource in Heat.
var resourceKeys = []string{"type", "properties", "metadata", "depends_on", "update_policy", "deletion_policy",
	"condition", "external_id", "description"}

// scope is the names that functions of a template may refer to.
type scope struct {
	parameters, resources []string
}

func scopeOf(declared map[string]cluster.Declared, resources *yaml.Node) scope {
	var s scope
	for name := range declared {
		s.parameters = append(s.parameters, name)
	}
	slices.Sort(s.parameters)
	for key := range pairs(resources) {
		s.resources = append(s.resources, key.Value)
	}
	return s
}

// checkReferences checks the references between the parts of a template, so that an error that Heat would report at the
// first build is reported with its line before the template is stored.
func checkReferences(s scope, sections map[string]*yaml.Node) error {
	for _, r := range pairs(sections["resources"]) {
		if err := s.checkResource(r); err != nil {
			return err
		}
	}
	for _, name := range []string{"conditions", "resources", "outputs"} {
		if section := sections[name]; section != nil {
			if err := s.checkFunctions(section); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkResource checks the keys of a resource, and its dependencies.
func (s scope) checkResource(r *yaml.Node) error {
	for key, value := range pairs(r) {
		if !contains(resourceKeys, key.Value) {
			return wrong(key, "%.60q is no key of a resource%s", key.Value, nearest.Hint(key.Value, resourceKeys))
		}
		if key.Value != "depends_on" {
			continue
		}
		names := []*yaml.Node{value}
		if value.Kind == yaml.SequenceNode {
			names = value.Content
		}
		for _, name := range names {
			if err := check(name, "depends_on", "resource", s.resources); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkFunctions checks the names in get_param, get_resource and get_attr below a node. As in Heat, a mapping with a
// single key is a function.
func (s scope) checkFunctions(n *yaml.Node) error {
	if n.Kind == yaml.MappingNode && len(n.Content) == 2 {
		key, named := n.Content[0], n.Content[1]
		if named.Kind == yaml.SequenceNode && len(named.Content) > 0 {
			named = named.Content[0]
		}
		var err error
		switch key.Value {
		case "get_param":
			if !strings.HasPrefix(named.Value, "OS::") { // parameters of Heat itself, such as OS::stack_name
				err = check(named, key.Value, "parameter", s.parameters)
			}
		case "get_resource", "get_attr":
			err = check(named, key.Value, "resource", s.resources)
		}
		if err != nil {
			return err
		}
	}
	for _, child := range n.Content {
		if err := s.checkFunctions(child); err != nil {
			return err
		}
	}
	return nil
}

// check rejects a plain-text name that is unknown. A name with a placeholder of repeat or of a group, such as %index%,
// is left to Heat.
func check(name *yaml.Node, function, what string, known []string) error {
	if name.Kind != yaml.ScalarNode || strings.ContainsAny(name.Value, "%<>$") || contains(known, name.Value) {
		return nil
	}
	return wrong(name, "%s names the %s %.60q, which the template does not have%s", function, what, name.Value,
		nearest.Hint(name.Value, known))
}
