package pool

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"gopkg.in/yaml.v3"

	"croft"
	"croft/internal/nearest"
	"croft/internal/settings"
)

// defaults returns the settings of a pool whose file entry is empty.
func defaults(name Name) Settings {
	return Settings{
		Name: name, Max: 4, MaxStarting: 1, MaxPrealloc: 2,
		LivecheckPeriod: 10 * time.Minute, LivecheckAttempts: 3, ListPeriod: 30 * time.Minute,
		ReuseMaxTime: time.Hour, NamePattern: "{pool_name}_{id}_{datetime}",
		Limits: Limits{New: 30 * time.Minute, Delete: 10 * time.Minute, Livecheck: time.Minute,
			Release: 10 * time.Minute, List: 2 * time.Minute},
	}
}

// Parse reads pools.yaml: a mapping of names to settings, in whose order pools start their resources. check validates
// instance blocks; nil refuses them. Every fault is Invalid, and its message starts with file and line. unknown gets
// unknown settings of a pool as errors, and they are then ignored; nil refuses them too.
func Parse(file string, text []byte, check func(Instance) error, unknown func(error)) ([]Settings, error) {
	return parse(file, text, check, unknown, nil)
}

// parse does the work of Parse, and calls warn, unless it is nil, with settings that have no effect.
func parse(file string, text []byte, check func(Instance) error, unknown, warn func(error)) ([]Settings, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document yaml.Node
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return nil, nil // an empty file has no pools
	} else if err != nil {
		return nil, settings.SyntaxError(file, err)
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, croft.Errorf(croft.Invalid, "%s: more than one document: pools are in one", file)
	}
	if err := bounded(document.Content[0], 0, new(maxNodes)); err != nil {
		return nil, croft.Errorf(croft.Invalid, "%s:%w", file, err)
	}
	p := parser{check: check}
	if unknown != nil {
		p.unknown = func(err error) { unknown(croft.Errorf(croft.Invalid, "%s:%w", file, err)) }
	}
	if warn != nil {
		p.warn = func(err error) { warn(croft.Errorf(croft.Invalid, "%s:%w", file, err)) }
	}
	pools, err := p.pools(document.Content[0])
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "%s:%w", file, err)
	}
	return pools, nil
}

// Limits of a file: its nodes with aliases expanded, and its depth.
const (
	maxNodes = 100000
	maxDepth = 50
)

// bounded refuses aliases that lead to themselves, or to each other so often that the expanded file would be too large.
func bounded(n *yaml.Node, depth int, left *int) error {
	if *left--; *left < 0 || depth > maxDepth {
		return placed(n, "aliases make more of this than can be read: write it out")
	}
	if n.Kind == yaml.AliasNode {
		return bounded(n.Alias, depth+1, left)
	}
	for _, part := range n.Content {
		if err := bounded(part, depth+1, left); err != nil {
			return err
		}
	}
	return nil
}

type parser struct {
	check   func(Instance) error
	unknown func(error)
	warn    func(error)
	lines   map[Name]*yaml.Node
}

// placedError is an error at a line, which is printed after the file's name.
type placedError struct {
	line int
	err  error
}

func (e *placedError) Error() string { return fmt.Sprintf("%d: %v", e.line, e.err) }
func (e *placedError) Unwrap() error { return e.err }

func placed(n *yaml.Node, format string, args ...any) error {
	return &placedError{n.Line, fmt.Errorf(format, args...)}
}

// within adds the subject of an error, and keeps the innermost line.
func within(n *yaml.Node, what string, err error) error {
	if inner, ok := errors.AsType[*placedError](err); ok {
		return &placedError{inner.line, fmt.Errorf("%s: %w", what, inner.err)}
	}
	return placed(n, "%s: %w", what, err)
}

func (p *parser) pools(root *yaml.Node) ([]Settings, error) {
	if root.Tag == "!!null" {
		return nil, nil
	}
	entries, err := entriesOf(root, "pools")
	if err != nil {
		return nil, err
	}
	p.lines = map[Name]*yaml.Node{}
	var all []Settings
	for _, e := range entries {
		if err := checkPoolName(e.key); err != nil {
			return nil, err
		}
		set := defaults(Name(e.key.Value))
		if err := decodeFields(e.value, "pool "+e.key.Value, &set, poolFields, p.unknown); err != nil {
			return nil, err
		}
		if err := p.judge(&set, e); err != nil {
			return nil, err
		}
		p.lines[set.Name] = e.at("tags")
		p.warnOf(&set, e)
		all = append(all, set)
	}
	return all, p.tagsAgree(all)
}

// warnOf warns of a max_prealloc setting that has no effect.
func (p *parser) warnOf(s *Settings, e entry) {
	if p.warn == nil || len(s.OnDemand) == 0 || s.MaxPrealloc == 0 {
		return
	}
	entries, err := entriesOf(e.value, "")
	if err != nil {
		return // decodeFields has reported it
	}
	for _, set := range entries {
		if set.key.Value == "max_prealloc" {
			p.warn(placed(set.key, "pool %s: max_prealloc has no effect in a pool with tags_on_demand, which keeps nothing "+
				"warm: remove one of them", s.Name))
		}
	}
}

// checkPoolName accepts names that can be part of file names, keys and addresses.
func checkPoolName(n *yaml.Node) error {
	bad := func(c rune) bool {
		return !(c == '-' || c == '_' || c == '.' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' &&
			c <= 'Z')
	}
	if n.Value == "" || len(n.Value) > 128 || slices.ContainsFunc([]rune(n.Value), bad) {
		return placed(n,
			"%q cannot be the name of a pool: use letters, digits, dashes, dots and underscores, 128 at most", n.Value)
	}
	return nil
}

// judge checks rules that concern more than one setting.
func (p *parser) judge(s *Settings, e entry) error {
	wrong := func(setting, format string, args ...any) error {
		return placed(e.at(setting), "pool %s: %w", s.Name, fmt.Errorf(format, args...))
	}
	switch {
	case s.Instance != nil && s.Commands != (Commands{}):
		return wrong("instance", "instance and cmd_... are two ways to make resources: choose one")
	case s.Instance == nil && s.Commands.New == "":
		return wrong("", "cmd_new is required: the command that starts one resource (or instance: for croft's own)")
	case s.Instance == nil && s.Commands.Delete == "":
		return wrong("", "cmd_delete is required: the command that removes one resource")
	}
	if i := s.Instance; i != nil {
		switch own := croft.Project(i.Project); {
		case own == "":
			i.Project = string(s.Project)
		case s.Project == "" && own.Check() == nil:
			s.Project = own
		case s.Project != "" && s.Project != own:
			return wrong("project", "project is %s and its instances are %s's: name one of them", s.Project, own)
		}
		if p.check == nil {
			return wrong("instance", "this server makes no instances: give it the settings of a cloud, or leave instance out")
		}
		switch err := p.check(*s.Instance); {
		case errors.Is(err, croft.NotFound) && p.warn != nil:
			// A project can remove its image at any time, which must not end the pools of others.
			p.warn(wrong("instance", "instance: %w", err))
		case err != nil:
			return wrong("instance", "instance: %w", err)
		}
	}
	if _, err := expand(s.NamePattern, nil); err != nil {
		return wrong("name_pattern", "name_pattern: %w", err)
	}
	return s.checkTags(wrong)
}

func (s *Settings) checkTags(wrong func(setting, format string, args ...any) error) error {
	seen := map[string]bool{}
	for i, t := range s.AllTags() {
		if seen[t.Name] {
			setting := "tags"
			if i >= len(s.Tags) {
				setting = "tags_on_demand"
			}
			return wrong(setting, "the tag %s is there twice", t.Name)
		}
		seen[t.Name] = true
	}
	counters := map[string]bool{}
	for _, name := range s.Counters {
		if counters[name] {
			return wrong("named_counters", "the counter %s is there twice", name)
		}
		counters[name] = true
	}
	return nil
}

// tagsAgree refuses a tag that is on demand in one pool and not in another, because it would be undefined whether a
// ticket for it starts a resource.
func (p *parser) tagsAgree(all []Settings) error {
	onDemand := map[string]Name{}
	for _, s := range all {
		for _, t := range s.OnDemand {
			onDemand[t.Name] = s.Name
		}
	}
	for _, s := range all {
		for _, t := range s.Tags {
			if other, both := onDemand[t.Name]; both {
				return placed(p.lines[s.Name],
					"pool %s: the tag %s is one of tags_on_demand in pool %s: let it be that everywhere, or nowhere",
					s.Name, t.Name, other)
			}
		}
	}
	return nil
}

// entry is one line of a mapping.
type entry struct{ key, value *yaml.Node }

// at returns the place of a setting in the mapping; if it is not there, as the mapping's own, the mapping's.
func (e entry) at(setting string) *yaml.Node {
	n := e.value
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == setting {
			return n.Content[i]
		}
	}
	return e.key
}

// entriesOf resolves aliases and merged mappings; a mapping's own entries override merged ones.
func entriesOf(n *yaml.Node, what string) ([]entry, error) {
	at := n
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Tag == "!!null" {
		return nil, nil
	}
	if n.Kind != yaml.MappingNode {
		return nil, placed(at, "%s: write key: value, one on each line", what)
	}
	var own, merged []entry
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Tag == "!!merge" {
			more, err := mergedOf(value, what)
			if err != nil {
				return nil, err
			}
			merged = append(merged, more...)
			continue
		}
		if seen[key.Value] {
			return nil, placed(key, "%s: %s is there twice", what, key.Value)
		}
		seen[key.Value] = true
		own = append(own, entry{key, value})
	}
	for _, e := range merged {
		if !seen[e.key.Value] {
			seen[e.key.Value] = true
			own = append(own, e)
		}
	}
	return own, nil
}

func mergedOf(n *yaml.Node, what string) ([]entry, error) {
	if n.Kind != yaml.SequenceNode {
		return entriesOf(n, what)
	}
	var all []entry
	for _, one := range n.Content {
		more, err := entriesOf(one, what)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	return all, nil
}

// field reads one setting into a T.
type field[T any] func(*T, *yaml.Node) error

// decodeFields reads a mapping with these fields. Other keys are faults: they are passed to unknown, or returned if
// unknown is nil.
func decodeFields[T any](n *yaml.Node, what string, into *T, fields map[string]field[T], unknown func(error)) error {
	entries, err := entriesOf(n, what)
	if err != nil {
		return err
	}
	for _, e := range entries {
		read, known := fields[e.key.Value]
		if !known {
			err := placed(e.key, "%s: there is no setting %s%s", what, e.key.Value,
				nearest.Hint(e.key.Value, slices.Sorted(maps.Keys(fields))))
			if unknown == nil {
				return err
			}
			unknown(err)
			continue
		}
		value := e.value
		if value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		if value.Tag == "!!null" {
			continue // ignored
		}
		if err := read(into, value); err != nil {
			return within(e.key, what+": "+e.key.Value, err)
		}
	}
	return nil
}
