package crush

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"croft"
	"croft/crush"
	"croft/crush/policy"
	"croft/internal/command"
	"croft/internal/out"
	"croft/internal/userfile"
)

func readMap(path string) (*crush.Map, *crush.Program, error) {
	f, err := userfile.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("read a CRUSH map: %w", err)
	}
	defer f.Close()
	m, err := crush.ReadText(f)
	if err != nil {
		return nil, nil, croft.Errorf(croft.Invalid, "%s: %w", path, err)
	}
	p, err := crush.Compile(m)
	if err != nil {
		return nil, nil, croft.Errorf(croft.Invalid, "%s: %w", path, err)
	}
	return m, p, nil
}

// options say which inputs are placed, and how.
type options struct {
	rule, policy       string
	replicas, from, to int
	weights            []string
	ceph, bad          bool
	trace, threads     int
	output             string
	watch              func(crush.Event) // may be nil
}

const maxInputs = 10_000_000

func (o *options) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.rule, "rule", "", "place by this rule of the map (`name` or number)")
	f.StringVar(&o.policy, "policy", "", "place by a policy: its `text`, or @FILE")
	f.BoolVar(&o.ceph, "ceph", false, "a policy in one pass, which may give a device twice, as a rule of Ceph does")
	f.IntVarP(&o.replicas, "replicas", "n", 3, "how many replicas (`number`)")
	f.IntVar(&o.from, "from", 0, "the first `input`")
	f.IntVar(&o.to, "to", 1023, "the last `input`")
	f.StringArrayVarP(&o.weights, "weight", "w", nil, "reweight a device, from 0 (out) to 1 (`device=share`; repeatable)")
	f.StringVarP(&o.output, "output", "o", out.FormatText, "print text, json or yaml (`format`)")
}

func (o *options) check(cmd *cobra.Command) error {
	for _, other := range []string{"policy", "ceph"} {
		if err := command.AtMostOne(cmd, "rule", other); err != nil {
			return err
		}
	}
	switch {
	case o.replicas < 1 || o.replicas > 1024:
		return croft.Errorf(croft.Invalid, "--replicas %d: give 1 to 1024", o.replicas)
	case o.from < 0 || o.to < o.from || o.to > 1<<32-1 || o.to-o.from >= maxInputs:
		return croft.Errorf(croft.Invalid, "--from %d --to %d: give inputs from 0 to %d, the last not before the first, "+
			"and at most %d at once", o.from, o.to, int64(1<<32-1), maxInputs)
	case !slices.Contains([]string{out.FormatText, out.FormatJSON, out.FormatYAML}, o.output):
		return croft.Errorf(croft.Invalid, "output %q is not one of text, json and yaml", o.output)
	}
	return nil
}

// placer returns a function that appends the places of one input. Only one goroutine may use it.
func (o *options) placer(m *crush.Map, p *crush.Program) (func(x uint32, to []crush.ID) []crush.ID, error) {
	mapper := p.NewMapper()
	mapper.Watch(o.watch)
	weights, err := o.reweights(m, p)
	if err != nil {
		return nil, err
	}
	if o.policy != "" {
		c, err := o.compilePolicy(m)
		if err != nil {
			return nil, err
		}
		return func(x uint32, to []crush.ID) []crush.ID {
			return c.Place(mapper, policy.Request{X: x, Want: o.replicas, Reweights: weights, Ceph: o.ceph}, to)
		}, nil
	}
	rule, err := o.ruleOf(m, p)
	if err != nil {
		return nil, err
	}
	return func(x uint32, to []crush.ID) []crush.ID { return mapper.Map(rule, x, o.replicas, weights, to) }, nil
}

func (o *options) compilePolicy(m *crush.Map) (*policy.Compiled, error) {
	text := o.policy
	if path, isFile := strings.CutPrefix(text, "@"); isFile {
		data, err := userfile.Read(path)
		if err != nil {
			return nil, croft.Errorf(croft.Invalid, "read a policy: %w", err)
		}
		text = string(data)
	}
	p, err := policy.Parse(text)
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "--policy: %w", err)
	}
	c, err := policy.Compile(p, m)
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "--policy: %w", err)
	}
	return c, nil
}

// ruleOf returns the rule that the flag names; without the flag, the only rule of the map.
func (o *options) ruleOf(m *crush.Map, p *crush.Program) (int, error) {
	if o.rule == "" {
		if len(m.Rules) == 1 {
			return m.Rules[0].ID, nil
		}
		return 0, croft.Errorf(croft.Invalid, "the map has %d rules: say which with --rule, or give a --policy; %s",
			len(m.Rules), rulesOf(m))
	}
	if id, ok := p.Rule(o.rule); ok {
		return id, nil
	}
	id, err := strconv.Atoi(o.rule)
	if err != nil || !slices.ContainsFunc(m.Rules, func(r crush.Rule) bool { return r.ID == id }) {
		return 0, croft.Errorf(croft.NotFound, "the map has no rule %q; %s", o.rule, rulesOf(m))
	}
	return id, nil
}

func rulesOf(m *crush.Map) string {
	var names []string
	for _, r := range m.Rules {
		names = append(names, r.Name)
	}
	if len(names) == 0 {
		return "it has none"
	}
	return "it has " + strings.Join(names, ", ")
}

// reweights returns the reweights of all devices; nil: none are given.
func (o *options) reweights(m *crush.Map, p *crush.Program) (crush.Reweights, error) {
	if len(o.weights) == 0 {
		return nil, nil
	}
	all := make(crush.Reweights, p.Devices())
	for i := range all {
		all[i] = crush.One
	}
	for _, w := range o.weights {
		name, share, _ := strings.Cut(w, "=")
		f, err := strconv.ParseFloat(share, 64)
		if err != nil || !(f >= 0 && f <= 1) {
			return nil, croft.Errorf(croft.Invalid, "--weight %s: give DEVICE=SHARE, the share from 0 to 1", w)
		}
		at := slices.IndexFunc(m.Devices, func(d crush.Device) bool {
			return d.Name == name || strconv.Itoa(int(d.ID)) == name
		})
		if at < 0 {
			return nil, croft.Errorf(croft.NotFound, "--weight %s: the map has no device %q", w, name)
		}
		all[m.Devices[at].ID] = crush.WeightOf(f)
	}
	return all, nil
}

var errNoMap = errors.New("give the file of a CRUSH map in crushtool's text form")

// oneMap returns a check that the arguments name the file of a map.
func oneMap(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		if len(given) < n {
			return croft.Errorf(croft.Invalid, "usage: %s: %w", cmd.UseLine(), errNoMap)
		}
		return command.Count(n, n)(cmd, given)
	}
}
