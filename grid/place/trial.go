package place

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"croft"
	"croft/crush"
	"croft/crush/policy"
	"croft/grid/state"
	"croft/internal/lazyregexp"
)

// Check validates the policies of all jobs, such as unknown names and numbers of replicas that do not fit. Errors:
// Invalid and NotFound, joined, with file and line. It warns about policies that may not mean what their author
// intended.
func Check(s *state.State) (warnings []state.Problem, err error) {
	d := &deciding{s: s, trees: map[string]*tree{}, ids: s.IDs.Clone()}
	err = d.prepare()
	return d.warnings, err
}

// Trial applies a policy to a cluster's tree, to examine the results. It is not safe for concurrent use.
type Trial struct {
	Map  *crush.Map
	Rule Rule
	s    *state.State
	d    *deciding
	p    *placing
}

// NewTrial returns a trial of a policy for a job. If j is nil, it uses a job without facts and uses. If text is empty,
// it uses the job's own policy. It returns the errors of Resolve, and Invalid if the policy is not a list of
// instructions.
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

// Input returns the CRUSH input of the job.
func (t *Trial) Input() uint32 { return t.p.x }

// Place returns the nodes at which the policy places an input, and reports each candidate to watch, which may be nil.
// It refuses nodes that the job cannot use, unless all is set.
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

// Short describes the takes that give fewer nodes for an input than their instructions request, or returns "".
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

// Why returns the reason why a node cannot be used, or "" if it can, apart from limits by other slots of the job.
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

// LeftOut describes which nodes the job's facts exclude, and why.
func (t *Trial) LeftOut() (lines []string) {
	for _, n := range t.s.Leaves {
		if !t.p.job.Admits(n) {
			lines = append(lines, t.d.forbids(t.p, n))
		}
	}
	return lines
}

// Code returns the encoded policy for the buckets of this cluster.
func (t *Trial) Code() ([]byte, error) {
	code, err := t.Rule.Policy.Encode(t.Map)
	return code, kinded(err)
}

// maxSize is the maximum size that a rule of Ceph can state; crushtool up to version 16 requires one.
const maxSize = 255

var ruleName = lazyregexp.New(`[^A-Za-z0-9_.-]+`)

// Export returns the CRUSH map of a cluster with the policies of its jobs as rules, for crushtool. With a job, the map
// contains only the nodes that the job's facts admit, and only the job's policy.
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
				name := strings.Trim(ruleName.Get().ReplaceAllString(r.Text, "_"), "_")
				if call.Get().FindString(r.Text) == "" {
					name = "policy_of_" + strings.Trim(ruleName.Get().ReplaceAllString(one.Name, "_"), "_")
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
