package template

import (
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"croft/cluster"
	"croft/internal/nearest"
)

// resourceKeys are what Heat knows of a resource.
var resourceKeys = []string{"type", "properties", "metadata", "depends_on", "update_policy", "deletion_policy",
	"condition", "external_id", "description"}

// scope is what the functions of a template may name.
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

// checkReferences checks that the parts of a template name each other rightly: what Heat would refuse at the first
// build is told with its line before the template is stored.
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

// checkResource checks the keys of a resource, and what it depends on.
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

// checkFunctions checks what get_param, get_resource and get_attr name below a node. As for Heat, a mapping with one
// key alone is a function.
func (s scope) checkFunctions(n *yaml.Node) error {
	if n.Kind == yaml.MappingNode && len(n.Content) == 2 {
		key, named := n.Content[0], n.Content[1]
		if named.Kind == yaml.SequenceNode && len(named.Content) > 0 {
			named = named.Content[0]
		}
		var err error
		switch key.Value {
		case "get_param":
			if !strings.HasPrefix(named.Value, "OS::") { // of Heat itself, such as OS::stack_name
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

// check refuses a name in plain text that is not one of those that there are. One with a mark of repeat or of a group,
// such as %index%, is left to Heat.
func check(name *yaml.Node, function, what string, known []string) error {
	if name.Kind != yaml.ScalarNode || strings.ContainsAny(name.Value, "%<>$") || contains(known, name.Value) {
		return nil
	}
	return wrong(name, "%s names the %s %.60q, which the template does not have%s", function, what, name.Value,
		nearest.Hint(name.Value, known))
}
