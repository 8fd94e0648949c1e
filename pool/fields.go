package pool

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"croft"
	"croft/internal/nearest"
)

// poolFields are the settings of a pool, by their names in the file.
var poolFields = map[string]field[Settings]{
	"cmd_new":                text(func(s *Settings) *string { return &s.Commands.New }),
	"cmd_delete":             text(func(s *Settings) *string { return &s.Commands.Delete }),
	"cmd_livecheck":          text(func(s *Settings) *string { return &s.Commands.Livecheck }),
	"cmd_release":            text(func(s *Settings) *string { return &s.Commands.Release }),
	"cmd_list":               text(func(s *Settings) *string { return &s.Commands.List }),
	"cmd_new_timeout":        seconds(1, func(s *Settings) *time.Duration { return &s.Limits.New }),
	"cmd_delete_timeout":     seconds(1, func(s *Settings) *time.Duration { return &s.Limits.Delete }),
	"cmd_livecheck_timeout":  seconds(1, func(s *Settings) *time.Duration { return &s.Limits.Livecheck }),
	"cmd_release_timeout":    seconds(1, func(s *Settings) *time.Duration { return &s.Limits.Release }),
	"cmd_list_timeout":       seconds(1, func(s *Settings) *time.Duration { return &s.Limits.List }),
	"instance":               instance,
	"max":                    number(0, func(s *Settings) *int { return &s.Max }),
	"max_starting":           number(0, func(s *Settings) *int { return &s.MaxStarting }),
	"max_prealloc":           number(0, func(s *Settings) *int { return &s.MaxPrealloc }),
	"start_delay":            seconds(0, func(s *Settings) *time.Duration { return &s.StartDelay }),
	"livecheck_period":       seconds(0, func(s *Settings) *time.Duration { return &s.LivecheckPeriod }),
	"livecheck_attempts":     number(1, func(s *Settings) *int { return &s.LivecheckAttempts }),
	"list_period":            seconds(1, func(s *Settings) *time.Duration { return &s.ListPeriod }),
	"tags":                   tags(func(s *Settings) *[]Tag { return &s.Tags }),
	"tags_on_demand":         tags(func(s *Settings) *[]Tag { return &s.OnDemand }),
	"named_counters":         names(func(s *Settings) *[]string { return &s.Counters }, checkCounter),
	"reuse_opportunity_time": seconds(0, func(s *Settings) *time.Duration { return &s.ReuseTime }),
	"reuse_max_count":        number(0, func(s *Settings) *int { return &s.ReuseCount }),
	"reuse_max_time":         seconds(0, func(s *Settings) *time.Duration { return &s.ReuseMaxTime }),
	"renew":                  truth(func(s *Settings) *bool { return &s.Renew }),
	"ttl":                    seconds(0, func(s *Settings) *time.Duration { return &s.TTL }),
	"name_pattern":           text(func(s *Settings) *string { return &s.NamePattern }),
	"description":            text(func(s *Settings) *string { return &s.Description }),
	"project":                project,
	"shared":                 truth(func(s *Settings) *bool { return &s.Shared }),
}

// instanceFields are the settings in a pool's instance.
var instanceFields = map[string]field[Instance]{
	"resources": text(func(i *Instance) *string { return &i.Resources }),
	"image":     text(func(i *Instance) *string { return &i.Image }),
	"user_data": text(func(i *Instance) *string { return &i.UserData }),
	"project":   text(func(i *Instance) *string { return &i.Project }),
	"keys":      names(func(i *Instance) *[]string { return &i.Keys }, nil),
	"networks":  names(func(i *Instance) *[]string { return &i.Networks }, nil),
	"open":      names(func(i *Instance) *[]string { return &i.Open }, nil),
	"restart":   text(func(i *Instance) *string { return &i.Restart }),
	"ready":     readiness,
}

func instance(s *Settings, n *yaml.Node) error {
	i := Instance{Ready: ReadyAddress}
	if err := decodeFields(n, "an instance", &i, instanceFields, nil); err != nil {
		return err
	}
	if i.Resources == "" {
		return fmt.Errorf("resources is required: what each instance gets, such as VCPU:1,MEMORY_MB:512,DISK_GB:4")
	}
	s.Instance = &i
	return nil
}

func project(s *Settings, n *yaml.Node) error {
	if n.Kind != yaml.ScalarNode {
		return fmt.Errorf("want the name of a project, not %s", found(n))
	}
	s.Project = croft.Project(n.Value)
	return s.Project.Check()
}

func truth[T any](at func(*T) *bool) field[T] {
	return func(v *T, n *yaml.Node) error {
		if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" || n.Decode(at(v)) != nil {
			return fmt.Errorf("want true or false, not %s", found(n))
		}
		return nil
	}
}

func readiness(i *Instance, n *yaml.Node) error {
	all := []string{string(ReadyAddress), string(ReadySSH), string(ReadyCloudInit)}
	if !slices.Contains(all, n.Value) {
		return fmt.Errorf("want %s, not %s%s", strings.Join(all, ", "), found(n), nearest.Hint(n.Value, all))
	}
	i.Ready = Readiness(n.Value)
	return nil
}

// found describes a node of the file in words for an error message.
func found(n *yaml.Node) string {
	switch n.Kind {
	case yaml.SequenceNode:
		return "a list"
	case yaml.MappingNode:
		return "a mapping"
	}
	return strconv.Quote(n.Value)
}

// text returns a field that reads any scalar as written.
func text[T any](at func(*T) *string) field[T] {
	return func(v *T, n *yaml.Node) error {
		if n.Kind != yaml.ScalarNode {
			return fmt.Errorf("want a text, not %s", found(n))
		}
		*at(v) = n.Value
		return nil
	}
}

func number[T any](least int, at func(*T) *int) field[T] {
	return func(v *T, n *yaml.Node) error {
		var i int
		if n.Kind != yaml.ScalarNode || n.Tag != "!!int" || n.Decode(&i) != nil || i < least {
			return fmt.Errorf("want a whole number from %d on, not %s", least, found(n))
		}
		*at(v) = i
		return nil
	}
}

// seconds returns a field that reads a number of seconds, or a duration such as 90s or 15m.
func seconds[T any](least time.Duration, at func(*T) *time.Duration) field[T] {
	return func(v *T, n *yaml.Node) error {
		var d time.Duration
		var count float64
		var err error
		switch {
		case n.Kind != yaml.ScalarNode:
			err = strconv.ErrSyntax
		case n.Tag == "!!int" || n.Tag == "!!float":
			err = n.Decode(&count)
			d = time.Duration(count * float64(time.Second))
		default:
			d, err = time.ParseDuration(n.Value)
		}
		if err != nil || d < least || count > 1e9 {
			return fmt.Errorf("want a number of seconds, or a duration such as 90s or 15m, not %s", found(n))
		}
		*at(v) = d
		return nil
	}
}

func list(n *yaml.Node) ([]*yaml.Node, error) {
	if n.Kind != yaml.SequenceNode {
		return nil, fmt.Errorf("is a list: write [%s]", n.Value)
	}
	items := slices.Clone(n.Content)
	for i, item := range items {
		if item.Kind == yaml.AliasNode {
			items[i] = item.Alias
		}
	}
	return items, nil
}

func names[T any](at func(*T) *[]string, check func(string) error) field[T] {
	return func(v *T, n *yaml.Node) error {
		items, err := list(n)
		if err != nil {
			return err
		}
		var all []string
		for _, item := range items {
			if item.Kind != yaml.ScalarNode || item.Value == "" {
				return fmt.Errorf("want texts, not %s", found(item))
			}
			if check != nil {
				if err := check(item.Value); err != nil {
					return err
				}
			}
			all = append(all, item.Value)
		}
		*at(v) = all
		return nil
	}
}

// checkCounter checks that name is a valid end of a variable's name.
func checkCounter(name string) error {
	for _, c := range name {
		if !(c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z') {
			return fmt.Errorf("%q is a part of a variable's name: use letters, digits and underscores", name)
		}
	}
	return nil
}

// tagFields are the settings of a tag that is written as a mapping.
var tagFields = map[string]field[Tag]{
	"name": text(func(t *Tag) *string { return &t.Name }),
	"priority": func(t *Tag, n *yaml.Node) error {
		if n.Tag != "!!int" || n.Decode(&t.Priority) != nil {
			return fmt.Errorf("want a whole number, not %s", found(n))
		}
		return nil
	},
}

func tags(at func(*Settings) *[]Tag) field[Settings] {
	return func(s *Settings, n *yaml.Node) error {
		items, err := list(n)
		if err != nil {
			return err
		}
		var all []Tag
		for _, item := range items {
			var t Tag
			switch item.Kind {
			case yaml.ScalarNode:
				t.Name = item.Value
			default:
				if err := decodeFields(item, "a tag", &t, tagFields, nil); err != nil {
					return err
				}
			}
			if err := CheckTag(t.Name); err != nil {
				return err
			}
			all = append(all, t)
		}
		*at(s) = all
		return nil
	}
}

// placeholders are allowed in name patterns.
var placeholders = []string{"pool_name", "id", "datetime"}

// expand replaces {placeholders}; {{ and }} are braces. With nil values it only checks.
func expand(pattern string, values map[string]string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		c := pattern[i]
		switch {
		case (c == '{' || c == '}') && i+1 < len(pattern) && pattern[i+1] == c:
			b.WriteByte(c)
			i++
		case c == '}':
			return "", fmt.Errorf("%q has a } without a {", pattern)
		case c == '{':
			name, _, closed := strings.Cut(pattern[i+1:], "}")
			if !closed {
				return "", fmt.Errorf("%q has a { without a }", pattern)
			}
			if !slices.Contains(placeholders, name) {
				return "", fmt.Errorf("there is no placeholder {%s}: use {%s}%s", name,
					strings.Join(placeholders, "}, {"), nearest.Hint(name, placeholders))
			}
			b.WriteString(values[name])
			i += len(name) + 1
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), nil
}

// resourceName is the name of a resource created now. The pattern is already checked.
func (s *Settings) resourceName(id ResourceID, now time.Time) string {
	name, err := expand(s.NamePattern, map[string]string{
		"pool_name": string(s.Name), "id": fmt.Sprintf("%08d", id), "datetime": now.Local().Format("20060102_150405"),
	})
	if err != nil {
		return fmt.Sprintf("%s_%08d", s.Name, id)
	}
	return name
}
