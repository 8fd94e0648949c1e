package local

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"croft"
	"croft/cluster"
	"croft/internal/lazyregexp"
	"croft/internal/nearest"
)

// text is an implementation at the local site.
type text struct {
	Description string               `yaml:"description"`
	Parameters  map[string]parameter `yaml:"parameters"`
	Policy      string               `yaml:"policy"`   // name of a CRUSH policy
	ApartBy     string               `yaml:"apart_by"` // a level of locations, optionally with :soft
	Ready       string               `yaml:"ready"`
	// commands on the master: its set-up is complete once all of them succeed
	Checks []string `yaml:"checks"`
	Master machine  `yaml:"master"`
	Slave  machine  `yaml:"slave"`

	lines map[string]int // of values, by path, such as master.user_data
}

// machine describes the members of a role.
type machine struct {
	Resources string   `yaml:"resources"`
	Image     string   `yaml:"image"`
	Traits    []string `yaml:"traits"`
	UserData  string   `yaml:"user_data"`
	Networks  []string `yaml:"networks"`
	Keys      []string `yaml:"keys"` // public SSH keys, or names of keys that the project keeps
	Ephemeral bool     `yaml:"ephemeral"`
}

// parameter is a parameter that a text declares.
type parameter struct {
	Type        string `yaml:"type"`
	Default     any    `yaml:"default"`
	Description string `yaml:"description"`
	Hidden      bool   `yaml:"hidden"`
}

// The conditions under which a member is ready.
const (
	readyAddress = "address"    // it runs and has an address
	readySSH     = "ssh"        // its SSH server answers, too
	readySetUp   = "phone-home" // its guest has reported the end of the set-up
)

var (
	readies    = []string{readyAddress, readySSH, readySetUp}
	textKeys   = []string{"description", "parameters", "policy", "apart_by", "ready", "checks", "master", "slave"}
	memberKeys = []string{"resources", "image", "traits", "user_data", "networks", "keys", "ephemeral"}
	paramKeys  = []string{"type", "default", "description", "hidden"}
	paramForm  = lazyregexp.New(`^[a-z][a-z0-9_]{0,62}$`)
)

// parse parses a text strictly. Invalid, with the line.
func parse(given string) (*text, error) {
	if len(given) > cluster.MaxTemplate {
		return nil, croft.Errorf(croft.Invalid, "the text has %d bytes: it may have %d", len(given),
			cluster.MaxTemplate)
	}
	var root yaml.Node
	if err := yaml.Unmarshal([]byte(given), &root); err != nil {
		return nil, croft.Errorf(croft.Invalid, "the text is not YAML: %s", plain(err))
	}
	if len(root.Content) != 1 {
		return nil, croft.Errorf(croft.Invalid, "the text is empty: it needs a master and a slave")
	}
	t := &text{lines: map[string]int{}}
	if err := t.look(root.Content[0], "", textKeys); err != nil {
		return nil, err
	}
	if err := root.Content[0].Decode(t); err != nil {
		return nil, croft.Errorf(croft.Invalid, "%s", plain(err))
	}
	return t, t.check()
}

// plain returns a YAML error as one line, without the name of the package.
func plain(err error) string {
	if e, ok := errors.AsType[*yaml.TypeError](err); ok {
		return strings.Join(e.Errors, "; ")
	}
	return strings.TrimPrefix(err.Error(), "yaml: ")
}

// look rejects unknown keys and aliases below a mapping, and stores the lines of values.
func (t *text) look(n *yaml.Node, path string, known []string) error {
	if n.Kind != yaml.MappingNode {
		return at(n.Line, "%s is no mapping", orText(path))
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if known != nil && !slices.Contains(known, key.Value) {
			return at(key.Line, "there is no %.80q in %s%s", key.Value, orText(path), nearest.Hint(key.Value, known))
		}
		full := strings.TrimPrefix(path+"."+key.Value, ".")
		if err := noAliases(value); err != nil {
			return err
		}
		t.lines[full] = value.Line
		if value.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
			t.lines[full]++ // a block text starts on the line after its indicator
		}
		var err error
		switch {
		case full == "master" || full == "slave":
			err = t.look(value, full, memberKeys)
		case full == "parameters":
			err = t.look(value, full, nil)
		case path == "parameters":
			err = t.look(value, full, paramKeys)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func noAliases(n *yaml.Node) error {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		return at(n.Line, "anchors and aliases of YAML are not read here: write the value out")
	}
	for _, c := range n.Content {
		if err := noAliases(c); err != nil {
			return err
		}
	}
	return nil
}

func orText(path string) string {
	if path == "" {
		return "the text"
	}
	return path
}

// at returns an error for a line.
func at(line int, format string, args ...any) error {
	return croft.Errorf(croft.Invalid, "line %d: %s", line, fmt.Sprintf(format, args...))
}

// check validates a text as far as that is possible without the cloud.
func (t *text) check() error {
	for _, name := range []string{"master", "slave"} {
		if t.lines[name] == 0 {
			return croft.Errorf(croft.Invalid, "the text does not describe a %s", name)
		}
	}
	if t.Ready == "" {
		t.Ready = readyAddress
		if len(t.Checks) > 0 {
			t.Ready = readySetUp
		}
	}
	if !slices.Contains(readies, t.Ready) {
		return at(t.lines["ready"], "ready is %.80q: use %s%s", t.Ready, strings.Join(readies, ", "),
			nearest.Hint(t.Ready, readies))
	}
	if len(t.Checks) > 0 && t.Ready != readySetUp {
		return at(t.lines["checks"], "checks end with the set-up of the master: they need ready: %s", readySetUp)
	}
	if _, err := t.rule(); err != nil {
		return at(t.lines["apart_by"], "apart_by: %v", err)
	}
	if t.Policy != "" {
		if err := croft.CheckPolicyName(t.Policy); err != nil {
			return at(t.lines["policy"], "%v", err)
		}
	}
	for _, name := range sorted(t.Parameters) {
		if err := t.checkParameter(name); err != nil {
			return err
		}
	}
	return t.checkMembers()
}

func (t *text) checkParameter(name string) error {
	p, line := t.Parameters[name], t.lines["parameters."+name]
	switch {
	case !paramForm.MatchString(name):
		return at(line, "%.80q is no name for a parameter: use small letters, digits and underscores", name)
	case slices.Contains(fixed, name):
		return at(line, "the parameter %s is used but not declared", name)
	case p.Type == "":
		p.Type = "string"
		t.Parameters[name] = p
	case !slices.Contains(cluster.ParameterTypes, p.Type):
		return at(line, "parameter %s has the type %.80q: use %s%s", name, p.Type,
			strings.Join(cluster.ParameterTypes, ", "),
			nearest.Hint(p.Type, cluster.ParameterTypes))
	}
	return nil
}

// rule returns the rule of the group that keeps members apart; empty: none exists.
func (t *text) rule() (croft.AffinityRule, error) {
	if t.ApartBy == "" {
		return "", nil
	}
	word, soft, said := strings.Cut(t.ApartBy, ":")
	if said && soft != "soft" {
		return "", croft.Errorf(croft.Invalid, "%.80q: after a level and a colon stands soft, or nothing", t.ApartBy)
	}
	level, err := croft.ParseLevel(word)
	if err != nil {
		return "", err
	}
	rule := croft.RuleOf(croft.Clause{AtMost: 1, Level: level})
	if said {
		rule = rule.Softened()
	}
	return rule, nil
}

// declared returns the parameters that Fill may set.
func (t *text) declared() map[string]cluster.Declared {
	all := map[string]cluster.Declared{
		cluster.ParamAllowedIP: {Type: "string", Default: true},
		cluster.ParamKeys:      {Type: "json", Default: true},
		paramKeyName:           {Type: "string", Default: true},
	}
	for name, p := range t.Parameters {
		all[name] = cluster.Declared{Type: p.Type, Default: p.Default != nil, Hidden: p.Hidden}
	}
	return all
}

// minimal returns the text for an implementation that only names an image.
func minimal(i cluster.Implementation) *text {
	of := func(r cluster.Role) machine {
		m := machine{Resources: "VCPU:1,MEMORY_MB:1024,DISK_GB:10", Image: "${image}"}
		if amounts := i.Resources[r]; len(amounts) > 0 {
			m.Resources = amounts.String()
		}
		return m
	}
	return &text{Ready: readyAddress, Master: of(cluster.Master), Slave: of(cluster.Slave),
		Parameters: map[string]parameter{cluster.ParamImage: {Type: "string", Default: i.Image}},
		lines:      map[string]int{}}
}

// textOf returns the text of an implementation. Invalid.
func textOf(i cluster.Implementation) (*text, error) {
	if i.Template == "" && i.Image != "" {
		return minimal(i), nil
	}
	return parse(i.Template)
}

// line returns the line of an offset in a value.
func (t *text) line(path, value string, offset int) int {
	return t.lines[path] + strings.Count(value[:offset], "\n")
}

func index(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }
