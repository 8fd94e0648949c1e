package place

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"croft"
	"croft/crush"
	"croft/crush/policy"
	"croft/grid/state"
)

// Check finds what is wrong with the policies of all jobs: names that are not there, replicas that do not fit. Invalid
// and NotFound, several joined, with file and line. It warns of policies that mean something else than they say.
func Check(s *state.State) (warnings []state.Problem, err error) {
	d := &deciding{s: s, trees: map[string]*tree{}, ids: s.IDs.Clone()}
	err = d.prepare()
	return d.warnings, err
}

// Trial is a policy on a cluster's tree, to be looked at. It is for one goroutine.
type Trial struct {
	Map  *crush.Map
	Rule Rule
	s    *state.State
	d    *deciding
	p    *placing
}

// NewTrial makes a trial of a policy as a job would have it, or, without one, as a job without facts and uses. An empty
// text is the job's own policy. Errors are those of Resolve.
func NewTrial(s *state.State, j *state.Job, text string) (*Trial, error) {
	if j == nil {
		j = &state.Job{Name: "trial", Want: 1, Min: 1, Balance: 1}
	}
	like := *j
	if text != "" {
		like.Policy = text
	}
	t := &Trial{s: s}
	t.d = &deciding{s: s, trees: map[string]*tree{}, ids: s.IDs.Clone(), without: map[*state.Node]bool{}}
	t.p = &placing{job: &like, x: Input(j.Name), want: 0, has: map[int]*state.Node{}}
	t.p.ports, t.p.portsVary = s.Ports(&like)
	if err := t.d.resolve(t.p); err != nil {
		return nil, err
	}
	t.Rule, t.Map = t.p.rule, t.p.tree.m
	if t.p.c == nil {
		return nil, croft.Errorf(croft.Invalid, "the policy %s is no list of instructions", t.Rule.Text)
	}
	t.d.used = map[*state.Node]*load{}
	for _, n := range s.Leaves {
		t.d.used[n] = &load{uses: state.Amounts{}}
	}
	for _, other := range s.Jobs {
		p := &placing{job: other}
		p.ports, _ = s.Ports(other)
		for _, slot := range other.Slots {
			if slot.Node != nil && other.Name != j.Name {
				t.d.count(p, slot.Node, 1)
				t.d.claim(p, slot.Number, slot.Node)
			}
		}
	}
	return t, nil
}

// Input is the number by which the job is placed.
func (t *Trial) Input() uint32 { return t.p.x }

// Place returns where the policy places an input, and tells a watcher, which may be nil, each candidate. Nodes that are
// out are refused, unless all is set.
func (t *Trial) Place(x uint32, want int, ceph, all bool, watch func(crush.Event)) []crush.ID {
	m := t.p.tree.mapper
	m.Watch(watch)
	defer m.Watch(nil)
	r := policy.Request{X: x, Want: want, Ceph: ceph}
	if !all {
		r.Refuse = func(id crush.ID) bool { return !t.d.usable(t.p, t.p.tree.nodes[id]) }
	}
	return t.p.c.c.Place(m, r, nil)
}

// Short names the takes that give fewer nodes of an input than their instructions ask for; empty: none does.
func (t *Trial) Short(x uint32, want int) string {
	m := t.p.tree.mapper
	var short []string
	given := map[crush.ID]bool{}
	m.Refuse(func(id crush.ID) bool { return given[id] || !t.d.usable(t.p, t.p.tree.nodes[id]) })
	defer m.Refuse(nil)
	for _, b := range t.p.tree.blocks(t.p.c, want) {
		ids := m.Run(b.taking.Steps, x, want, nil, nil)
		for _, id := range ids {
			given[id] = true
		}
		if len(ids) < b.seats {
			short = append(short, fmt.Sprintf("line %d: take %d gives %d of %d", b.taking.Line, b.taking.N, len(ids),
				b.seats))
		}
	}
	return strings.Join(short, "; ")
}

// Why says why a node cannot be taken; empty: it can, as far as other slots of the job allow it.
func (t *Trial) Why(id crush.ID) string {
	n := t.p.tree.nodes[id]
	switch {
	case n == nil:
		return ""
	case n.State != state.Up:
		return n.State
	case n.Weight == 0:
		return "of weight 0"
	}
	if key := t.d.full(t.p, n); key != "" {
		return "full: not enough " + key
	}
	if port := t.d.takenForAny(t.p, n); port != "" {
		return "full: another job has its port " + port
	}
	return ""
}

// LeftOut says which nodes the job's facts leave out, and why.
func (t *Trial) LeftOut() (lines []string) {
	for _, n := range t.s.Leaves {
		if !t.p.job.Admits(n) {
			lines = append(lines, t.d.forbids(t.p, n))
		}
	}
	return lines
}

// Code returns the policy in its coded form, for the buckets of this cluster.
func (t *Trial) Code() ([]byte, error) {
	code, err := t.Rule.Policy.Encode(t.Map)
	return code, kinded(err)
}

// maxSize is the greatest that a rule of Ceph can say; crushtool until 16 wants one to be said.
const maxSize = 255

var ruleName = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

// Export makes the CRUSH map of a cluster with the policies of its jobs as rules, for crushtool. With a job it is the
// map of the nodes that the job's facts leave, and its policy alone.
func Export(s *state.State, j *state.Job) (*crush.Map, error) {
	jobs := s.Jobs
	if j != nil {
		jobs = []*state.Job{j}
	}
	ids := s.IDs.Clone()
	m := Map(s, j, &ids)
	seen := map[string]bool{}
	var errs []error
	for _, one := range jobs {
		r, err := Resolve(s, one.Policy)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: the policy of %s: %w", one.PolicyAt, one.Name, err))
			continue
		}
		if r.Policy == nil || seen[r.Policy.String()] || j == nil && one.Filter() != "" {
			continue
		}
		seen[r.Policy.String()] = true
		p, err := hostless(r.Policy, m)
		if err == nil {
			var c *policy.Compiled
			if c, err = policy.Compile(p, m); err == nil {
				name := strings.Trim(ruleName.ReplaceAllString(r.Text, "_"), "_")
				if call.FindString(r.Text) == "" {
					name = "policy_of_" + strings.Trim(ruleName.ReplaceAllString(one.Name, "_"), "_")
				}
				if slices.ContainsFunc(m.Rules, func(r crush.Rule) bool { return r.Name == name }) {
					name += fmt.Sprintf("_%d", len(m.Rules))
				}
				m.Rules = append(m.Rules, crush.Rule{ID: len(m.Rules), Name: name, Min: 1, Max: maxSize,
					Steps: c.Steps()})
			}
		}
		if err != nil {
			errs = append(errs, croft.Errorf(croft.Invalid, "%s: the policy of %s: %w", one.PolicyAt, one.Name, err))
		}
	}
	return m, errors.Join(errs...)
}
