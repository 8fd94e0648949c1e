package template

import (
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// members are the properties of groups that contain the definition of a resource.
var members = []string{"resource_def", "resource"}

// checkResources checks that resources have types that the site itself defines: Heat and its clients fetch a type that
// is a path or an address.
func checkResources(resources *yaml.Node) error {
	for key, r := range pairs(resources) {
		if r.Kind != yaml.MappingNode {
			return wrong(key, "resource %.60q is a mapping with a type", key.Value)
		}
		if err := checkType(key, r); err != nil {
			return err
		}
		if err := checkMembers(r); err != nil {
			return err
		}
	}
	return nil
}

// checkMembers checks the types of the members of groups, at any depth.
func checkMembers(n *yaml.Node) error {
	for key, value := range pairs(n) {
		if slices.Contains(members, key.Value) && value.Kind == yaml.MappingNode {
			if err := checkType(key, value); err != nil {
				return err
			}
		}
		// A chain of resources has a list of types.
		if key.Value == "resources" && value.Kind == yaml.SequenceNode {
			for _, item := range value.Content {
				if item.Kind == yaml.ScalarNode && !named(item.Value) {
					return wrong(item, "%.80q is not a type of resources that a site has", item.Value)
				}
			}
		}
	}
	for _, child := range n.Content {
		if err := checkMembers(child); err != nil {
			return err
		}
	}
	return nil
}

// checkType checks the type of one definition.
func checkType(key, definition *yaml.Node) error {
	kind := field(definition, "type")
	switch {
	case kind == nil || kind.Kind != yaml.ScalarNode || kind.Value == "":
		return wrong(key, "%.60q has no type in plain text", key.Value)
	case !named(kind.Value):
		return wrong(kind, "the type %.80q is a path or an address; only types that the site has itself are permitted",
			kind.Value)
	}
	return nil
}

// named reports whether a type is a name, not a reference that is fetched.
func named(kind string) bool {
	lower := strings.ToLower(kind)
	if strings.ContainsAny(kind, "/\\ \t\n") || strings.HasPrefix(lower, "file:") {
		return false
	}
	return !slices.ContainsFunc([]string{".yaml", ".yml", ".template", ".json"}, func(end string) bool {
		return strings.HasSuffix(lower, end)
	})
}

// removesNamed reports whether a removal policy uses the parameter "removed".
func removesNamed(n *yaml.Node) bool {
	for key, value := range pairs(n) {
		if key.Value == "removal_policies" && takes(value, Removed) {
			return true
		}
	}
	return slices.ContainsFunc(n.Content, removesNamed)
}

// takes reports whether get_param names a parameter anywhere below a node.
func takes(n *yaml.Node, parameter string) bool {
	for key, value := range pairs(n) {
		if key.Value != "get_param" {
			continue
		}
		if value.Kind == yaml.SequenceNode && len(value.Content) > 0 {
			value = value.Content[0]
		}
		if value.Kind == yaml.ScalarNode && value.Value == parameter {
			return true
		}
	}
	return slices.ContainsFunc(n.Content, func(c *yaml.Node) bool { return takes(c, parameter) })
}

// Group returns the name of the resource that is the group of slaves: the first one whose removal policy uses the
// parameter "removed". Empty: none exists.
func Group(text string) string {
	root, err := parse(text)
	if err != nil {
		return ""
	}
	for key, r := range pairs(field(root, "resources")) {
		if removesNamed(r) {
			return key.Value
		}
	}
	return ""
}
