package place

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"croft"
	"croft/crush/policy"
	"croft/grid/state"
	"croft/internal/lazyregexp"
	"croft/internal/nearest"
)

// DefaultPolicy is the policy of jobs that do not specify one.
const DefaultPolicy = "spread(host)"

// Presets are the policies that every cluster has, in the format of files in policies/: a line with the parameters,
// then the instructions. A parameter may have a default, as in T=site. A file of the same name replaces a preset.
var Presets = map[string]string{
	"single":      "take 1",
	"spread":      "params T\nselect 0 ${T}; take 1",
	"local-first": "params L n R\nuse ${L}; select ${n} host; take 1; emit\nuse ${R}; select -${n} host; take 1",
	"across":      "params T n m\nselect ${n} ${T}; take ${m}",
	"pair":        "params T=site\nselect 1 ${T}; select 2 host; take 1",
}

// Presets that are not lists of instructions.
const (
	every = "every" // one slot on each node that fits
	pin   = "pin"   // pin(NODE)
)

// replicasOf is the number of replicas that a preset is designed for.
var replicasOf = map[string]int{"single": 1, "pair": 2, pin: 1}

// Rule is a policy whose names have not been resolved in a tree.
type Rule struct {
	Text     string // the text of the job's policy
	Policy   policy.Policy
	Every    bool
	Pin      string // the pinned node, if the policy is pin(NODE)
	Replicas int    // the number of replicas that it is designed for; 0: any number
}

var call = lazyregexp.New(`^([a-z0-9][a-z0-9._-]*)\s*(?:\(([^()]*)\))?$`)

// Resolve parses a policy: the name of a file in policies/ or of a preset, with its parameters in parentheses, or a
// list of instructions. Errors: Invalid or NotFound.
func Resolve(s *state.State, text string) (Rule, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		text = DefaultPolicy
	}
	r := Rule{Text: text}
	called := call.FindStringSubmatch(text)
	if called == nil || called[1] == "emit" {
		p, err := policy.Parse(text)
		r.Policy = p
		return r, kinded(err)
	}
	name := called[1]
	var given []string
	if strings.TrimSpace(called[2]) != "" {
		for _, one := range strings.Split(called[2], ",") {
			given = append(given, strings.TrimSpace(one))
		}
	}
	file, own := s.Policies[name]
	switch {
	case !own && name == every:
		r.Every = true
		return r, parameters(text, nil, given)
	case !own && name == pin:
		err := parameters(text, []string{"NODE"}, given)
		if err == nil && s.Node(given[0]) == nil {
			err = croft.Errorf(croft.NotFound, "%s: there is no node %s%s", text, given[0], nodeHint(s, given[0]))
		}
		if err == nil {
			r.Pin, r.Replicas = given[0], replicasOf[pin]
		}
		return r, err
	case !own && Presets[name] == "":
		known := append(slices.Collect(maps.Keys(s.Policies)), slices.Collect(maps.Keys(Presets))...)
		known = append(known, every, pin)
		return r, croft.Errorf(croft.NotFound, "there is no policy %q, neither in policies/ nor as a preset%s", name,
			nearest.Hint(name, slices.Sorted(slices.Values(known))))
	}
	source := file.Text
	if !own {
		source, r.Replicas = Presets[name], replicasOf[name]
	}
	body, err := fill(text, source, given)
	if err == nil {
		if r.Policy, err = policy.Parse(body); err != nil && own {
			err = fmt.Errorf("%s: %w", file.Path, err)
		}
	}
	return r, kinded(err)
}

func kinded(err error) error {
	if err == nil {
		return nil
	}
	return croft.Errorf(croft.Invalid, "%w", err)
}

func nodeHint(s *state.State, name string) string {
	var names []string
	for _, n := range s.Leaves {
		names = append(names, n.Name)
	}
	return nearest.Hint(name, names)
}

func parameters(text string, names, given []string) error {
	if len(names) != len(given) {
		want := "none"
		if len(names) > 0 {
			want = strings.Join(names, ", ")
		}
		return croft.Errorf(croft.Invalid, "%s: its parameters are %s, and %d are given", text, want, len(given))
	}
	return nil
}

var (
	parameter = lazyregexp.New(`\$\{([^}]*)\}`)
	argument  = lazyregexp.New(`^[A-Za-z0-9._-]+$`)
)

// fill replaces the parameters in the text of a policy by their values. Line numbers do not change.
func fill(text, source string, given []string) (string, error) {
	first, rest, more := strings.Cut(source, "\n")
	var names []string
	if fields := strings.Fields(first); len(fields) > 0 && fields[0] == "params" {
		names = fields[1:]
		source = "\n" + rest
		if !more {
			source = ""
		}
	}
	for i := len(given); i < len(names); i++ {
		if _, otherwise, has := strings.Cut(names[i], "="); has {
			given = append(given, otherwise)
		}
	}
	if err := parameters(text, names, given); err != nil {
		return "", err
	}
	values := map[string]string{}
	for i, name := range names {
		if !argument.MatchString(given[i]) {
			return "", fmt.Errorf("%s: %q is no name or number", text, given[i])
		}
		name, _, _ = strings.Cut(name, "=")
		values[name] = given[i]
	}
	var unknown error
	body := parameter.Get().ReplaceAllStringFunc(source, func(found string) string {
		name := found[2 : len(found)-1]
		if _, known := values[name]; !known {
			unknown = errors.New(text + ": it names ${" + name + "}, which is none of its parameters")
		}
		return values[name]
	})
	if strings.Contains(body, "select --") { // the expansion of -${n} with a negative n
		return "", fmt.Errorf("%s: give a number from 0", text)
	}
	return body, unknown
}
