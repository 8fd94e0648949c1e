package ipam

import (
	"net/netip"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"croft"
)

// A Change is a change of the facts in the file of one prefix. Comments and all other keys in the file stay.
type Change struct {
	AddTags    []string
	RemoveTags []string
	Set        map[string]string // string values by key
	Remove     []string          // keys
	Reserve    bool              // set reserved: true
}

// Describe changes the facts in the file of a prefix. It reports whether the change made any difference. Invalid: a tag
// or key is not a valid name, or an existing value has the wrong form. NotFound: a tag or key to remove does not exist.
func (n *Net) Describe(p netip.Prefix, c Change) (bool, error) {
	file := metaPath(p)
	text, err := n.dir.read(file)
	if err != nil && croft.KindOf(err) != croft.NotFound {
		return false, err
	}
	root, err := parse(file, text)
	if err != nil {
		return false, err
	}
	e := &editor{file: file, root: root}
	e.tags(c)
	for _, key := range sortedKeys(c.Set) {
		if err := checkKey(key); err != nil {
			return false, err
		}
		e.set(key, c.Set[key])
	}
	for _, key := range c.Remove {
		if !e.drop(key) {
			return false, croft.Errorf(croft.NotFound, "%s contains no facts about %s itself", file, key)
		}
	}
	if c.Reserve && e.at(reservedKey) == nil {
		e.put(reservedKey, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: "true"})
	}
	if e.err != nil || !e.changed {
		return false, e.err
	}
	if len(root.Content) == 0 {
		n.todo.remove(file)
		return true, nil
	}
	out, err := inYAML(root)
	n.todo.replace(file, out)
	return true, err
}

func sortedKeys(m map[string]string) []string {
	var keys []string
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// checkKey checks that a word may be the key of a string value. Invalid.
func checkKey(key string) error {
	if !validName(key) || key == tagsKey || key == reservedKey {
		return croft.Errorf(croft.Invalid,
			"%q is no key for a text: write a to z, 0 to 9 and . _ -, and not tags or reserved",
			key)
	}
	return nil
}

type editor struct {
	file    string
	root    *yaml.Node
	changed bool
	err     error
}

func (e *editor) at(key string) *yaml.Node {
	for i := 0; i+1 < len(e.root.Content); i += 2 {
		if e.root.Content[i].Value == key {
			return e.root.Content[i+1]
		}
	}
	return nil
}

func (e *editor) put(key string, value *yaml.Node) {
	e.changed = true
	for i := 0; i+1 < len(e.root.Content); i += 2 {
		if e.root.Content[i].Value == key {
			e.root.Content[i+1] = value
			return
		}
	}
	e.root.Content = append(e.root.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}, value)
}

func (e *editor) drop(key string) bool {
	for i := 0; i+1 < len(e.root.Content); i += 2 {
		if e.root.Content[i].Value == key {
			e.root.Content = slices.Delete(e.root.Content, i, i+2)
			e.changed = true
			return true
		}
	}
	return false
}

func (e *editor) set(key, value string) {
	if old := e.at(key); old != nil && old.Kind == yaml.ScalarNode && old.Value == value {
		return
	}
	e.put(key, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value})
}

// tags adds tags to the key tags if the file has that key, else to tags+. It removes tags from both keys.
func (e *editor) tags(c Change) {
	for _, t := range append(slices.Clone(c.AddTags), c.RemoveTags...) {
		if err := CheckName(t); err != nil && e.err == nil {
			e.err = err
		}
	}
	for _, t := range c.RemoveTags {
		if !e.removeTag(t) && e.err == nil {
			e.err = croft.Errorf(croft.NotFound, "%s does not say the tag %s itself", e.file, t)
		}
	}
	key := tagsKey + adds
	if old := e.at(tagsKey); old != nil && old.Tag != "!!null" {
		key = tagsKey
	}
	for _, t := range c.AddTags {
		if slices.ContainsFunc(e.list(tagsKey), func(n *yaml.Node) bool { return n.Value == t }) ||
			slices.ContainsFunc(e.list(tagsKey+adds), func(n *yaml.Node) bool { return n.Value == t }) {
			continue
		}
		list := append(e.list(key), &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: t})
		e.put(key, &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle, Content: list})
	}
}

func (e *editor) list(key string) []*yaml.Node {
	n := e.at(key)
	switch {
	case n == nil || n.Tag == "!!null":
		return nil
	case n.Kind == yaml.SequenceNode:
		return n.Content
	case n.Kind == yaml.MappingNode && e.err == nil:
		e.err = wrongAt(e.file, n, "%s: want a list of tags", key)
	}
	return []*yaml.Node{n}
}

func (e *editor) removeTag(t string) bool {
	for _, key := range []string{tagsKey, tagsKey + adds} {
		list := e.list(key)
		at := slices.IndexFunc(list, func(n *yaml.Node) bool { return n.Value == t })
		if at < 0 {
			continue
		}
		list = slices.Delete(slices.Clone(list), at, at+1)
		if len(list) == 0 && strings.HasSuffix(key, adds) {
			return e.drop(key)
		}
		e.put(key, &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle, Content: list})
		return true
	}
	return false
}

// HasKey reports whether the file of a prefix has a key.
func (n *Net) HasKey(p netip.Prefix, key string) (bool, error) {
	file := metaPath(p)
	text, err := n.dir.read(file)
	if croft.KindOf(err) == croft.NotFound {
		return false, nil
	} else if err != nil {
		return false, err
	}
	root, err := parse(file, text)
	e := &editor{file: file, root: root}
	return err == nil && e.at(key) != nil, err
}
