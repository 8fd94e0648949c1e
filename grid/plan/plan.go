package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"croft"
	"croft/grid/unit"
)

// Op is the operation of a step.
type Op string

// The operations of steps on a node.
const (
	Create   Op = "create"   // create a unit and start it
	Replace  Op = "replace"  // stop and remove a unit, and create it again
	Start    Op = "start"    // start an existing unit that is not running
	Await    Op = "await"    // wait until a unit is ready that an interrupted change may have started
	Stop     Op = "stop"     // stop a unit and remove it
	Firewall Op = "firewall" // replace the node's table
	Finish   Op = "finish"   // record that the change is complete
)

// Sign returns the symbol of an operation in a listing.
func (op Op) Sign() string {
	switch op {
	case Create:
		return "+"
	case Stop:
		return "-"
	case Replace, Firewall:
		return "~"
	}
	return "!"
}

// A Step is one change of one node.
type Step struct {
	Op      Op       `json:"op"`
	Node    string   `json:"node"`
	Name    string   `json:"name,omitempty"` // the name of the unit on its node
	Job     string   `json:"job,omitempty"`
	Slot    int      `json:"slot"`
	Runtime string   `json:"runtime,omitempty"`
	From    string   `json:"from,omitempty"` // the unit's current runtime, if Replace changes it
	Reason  string   `json:"reason"`
	Diff    []string `json:"diff,omitempty"` // lines that begin with + and -

	Unit *unit.Unit `json:"-"` // the desired unit; nil for Stop
	Was  *unit.Unit `json:"-"` // the applied unit, without the contents of its secret files; nil: not known
	Lost bool       `json:"-"` // Was cannot be created again: its image or the definition of its runtime has changed
}

// String describes the step in one line, without its differences.
func (s Step) String() string {
	if s.Name == "" {
		return fmt.Sprintf("%s %s %s: %s", s.Op.Sign(), s.Op, s.Node, s.Reason)
	}
	return fmt.Sprintf("%s %s %s on %s: %s", s.Op.Sign(), s.Op, s.Name, s.Node, s.Reason)
}

// A Plan is the list of all necessary changes.
type Plan struct {
	Format   int               `json:"format"`
	Cluster  string            `json:"cluster"`
	Revision string            `json:"revision"`
	Limit    []string          `json:"limit,omitempty"`
	Steps    []Step            `json:"steps"`
	Reads    []string          `json:"reads,omitempty"`    // nodes that the plan depends on and does not change, sorted
	Observed map[string]string `json:"observed"`           // the digests of the nodes that are changed or depended on
	Warnings []string          `json:"warnings,omitempty"` // sentences
	// Unseen lists the nodes that were not observed although they may need changes, in the order of their ids.
	Unseen []string `json:"unseen,omitempty"`
}

// Format is the version of the stored form of a plan.
const Format = 1

// ID identifies the plan: two plans with the same ID make the same changes to the same observed state.
func (p Plan) ID() string {
	p.Warnings, p.Unseen = nil, nil
	p.Steps = slices.Clone(p.Steps)
	for i := range p.Steps {
		p.Steps[i].Reason = "" // texts, which may contain times
	}
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // every field can be encoded
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// Empty reports whether nothing must change.
func (p Plan) Empty() bool { return len(p.Steps) == 0 }

// Writes lists the nodes that the plan changes, sorted.
func (p Plan) Writes() []string {
	var nodes []string
	for _, s := range p.Steps {
		nodes = append(nodes, s.Node)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// Parse parses a stored plan. Errors: Invalid.
func Parse(text []byte) (Plan, error) {
	var p Plan
	if err := json.Unmarshal(text, &p); err != nil {
		return Plan{}, croft.Errorf(croft.Invalid, "it is no plan: %w", err)
	}
	if p.Format != Format {
		return Plan{}, croft.Errorf(croft.Invalid, "it is no plan of format %d: make it again with croft grid plan --out",
			Format)
	}
	return p, nil
}

// Options limit a plan.
type Options struct {
	Limit  []string // the only nodes to change; nil: all
	Fenced []string // nodes that are certainly off, so that no unit runs there
}

// left is the state of a node whose file was removed. All units of the cluster on it are stopped.
const left = "left"

// state is the state of Compute.
type state struct {
	want     Desired
	options  Options
	observed map[string]Observed
	holders  map[string][]string // the desired nodes of each unit, by unit name
	seen     map[string][]string // the observed nodes of each unit, by unit name
	plan     Plan
}

// Compute returns the plan that leads from the observed to the desired state. Errors: Invalid if an option names an
// unknown node; Unavailable if a node that the plan depends on was not observed, and Conflict if an exclusive unit
// would run twice: then the plan has its steps, but must not be applied.
func Compute(want Desired, found []Observed, options Options) (Plan, error) {
	s := &state{want: want, options: options, observed: map[string]Observed{}, holders: map[string][]string{},
		seen: map[string][]string{},
		plan: Plan{Format: Format, Cluster: want.Cluster, Revision: want.Revision, Limit: slices.Clone(options.Limit),
			Steps: []Step{}, Observed: map[string]string{}}}
	slices.Sort(s.plan.Limit)
	for _, o := range found {
		s.observed[o.Node] = o
		for _, a := range o.Units {
			s.seen[a.Name] = append(s.seen[a.Name], o.Node)
		}
	}
	names := map[string]bool{}
	for _, n := range want.Nodes {
		names[n.Name] = true
		for _, u := range n.Units {
			s.holders[u.Name()] = append(s.holders[u.Name()], n.Name)
		}
	}
	for _, name := range slices.Concat(options.Limit, options.Fenced) {
		if !names[name] {
			return Plan{}, croft.Errorf(croft.Invalid, "there is no node %q", name)
		}
	}
	nodes := slices.Clone(want.Nodes)
	slices.SortFunc(nodes, func(a, b unit.Node) int { return cmp.Compare(a.ID, b.ID) })
	for i := range nodes {
		s.node(&nodes[i])
	}
	s.addresses(nodes)
	return s.plan, s.dependencies(nodes)
}

// addresses warns if a unit gets a pooled address that an unobserved node may still have.
func (s *state) addresses(nodes []unit.Node) {
	for _, step := range s.plan.Steps {
		if step.Unit == nil || !step.Unit.Pooled || step.Op != Create && step.Op != Start {
			continue
		}
		for _, n := range nodes {
			o := s.observed[n.Name]
			if n.Name == step.Node || o.Node != "" && o.Error == "" || slices.Contains(s.options.Fenced, n.Name) {
				continue
			}
			s.warn("%s may still have the address %s of %s, if it is not off: write exclusive: true into the job %s to wait "+
				"for that", n.Name, step.Unit.Address, step.Name, step.Job)
		}
	}
}

func (s *state) limited(node string) bool {
	return len(s.options.Limit) > 0 && !slices.Contains(s.options.Limit, node)
}

func (s *state) warn(format string, args ...any) {
	s.plan.Warnings = append(s.plan.Warnings, fmt.Sprintf(format, args...))
}

// node adds the steps of one node.
func (s *state) node(n *unit.Node) {
	o, known := s.observed[n.Name]
	switch {
	case s.limited(n.Name) || slices.Contains(s.options.Fenced, n.Name):
		return
	case n.State == "maintenance":
		s.warn("%s is in maintenance: nothing is changed there", n.Name)
		return
	case !known || o.Error != "":
		if n.State == left {
			s.warn("%s has no file any more and was not looked at (%s): units may still run there; once it is off, "+
				"croft grid node gone %s", n.Name, cmp.Or(o.Error, "nobody asked"), n.Name)
			return
		}
		s.warn("%s was not looked at: %s", n.Name, cmp.Or(o.Error, "nobody asked"))
		if n.State != "out" {
			s.plan.Unseen = append(s.plan.Unseen, n.Name)
		}
		return
	}
	for _, title := range o.Unwatched {
		s.warn("%s: %s", n.Name, unconfirmed(title))
	}
	if n.State == left && s.renamed(n, o) {
		return
	}
	before := len(s.plan.Steps)
	for i := range n.Units {
		if step, needed := s.unit(n, &n.Units[i], o); needed {
			s.plan.Steps = append(s.plan.Steps, step)
		}
	}
	for _, a := range o.Units {
		if !slices.ContainsFunc(n.Units, func(u unit.Unit) bool { return u.Name() == a.Name }) {
			s.plan.Steps = append(s.plan.Steps, s.stop(n, a, o))
		}
	}
	if step, needed := firewall(n, o); needed {
		s.plan.Steps = append(s.plan.Steps, step)
	}
	if n.State == left && len(s.plan.Steps) == before {
		s.warn("%s has no file any more, and nothing of the cluster runs there: croft grid node gone %s", n.Name,
			n.Name)
		return
	}
	if len(s.plan.Steps) == before && o.Phase != "" && !o.whole() {
		s.plan.Steps = append(s.plan.Steps, Step{Op: Finish, Node: n.Name, Reason: "the last change was interrupted (" +
			o.Phase + "), and nothing of it is left to do"})
	}
}

// renamed reports whether a node without a file is the same machine as a node with a file.
func (s *state) renamed(n *unit.Node, o Observed) bool {
	return slices.ContainsFunc(s.want.Nodes, func(other unit.Node) bool {
		seen := s.observed[other.Name]
		return other.State != left && other.StateDir == n.StateDir && o.Boot != "" && seen.Boot == o.Boot &&
			o.Epoch > 0 && seen.Epoch == o.Epoch && seen.Revision == o.Revision
	})
}

// unit returns the step for a desired unit. It returns false if the unit needs none.
func (s *state) unit(n *unit.Node, u *unit.Unit, o Observed) (Step, bool) {
	step := Step{Node: n.Name, Name: u.Name(), Job: u.Job, Slot: u.Slot, Runtime: u.Runtime, Unit: u,
		Was: o.applied(u.Name())}
	a := o.unit(step.Name)
	switch {
	case a == nil:
		step.Op, step.Reason = Create, "it is not there"
		if from := s.elsewhere(step.Name, n.Name); from != "" {
			step.Reason = "it moves here from " + from
		}
		step.Diff = diffUnit(nil, u)
		step.Was = nil
	case a.Hash != u.Hash() || a.Runtime != u.Runtime || a.OldDefinition || a.OldImage:
		step.Op = Replace
		step.Lost = a.OldDefinition || a.OldImage
		if a.Runtime != u.Runtime {
			step.From = a.Runtime
		}
		step.Diff = diffUnit(step.Was, u)
		step.Reason = reason(step.Was, u, a)
	case !a.Running:
		step.Op, step.Reason = Start, "it does not run: "+cmp.Or(a.Status, "stopped")
	case !o.whole() && o.Phase != "":
		step.Op, step.Reason = Await, "the last change was interrupted ("+o.Phase+"), and may not have waited for it"
	default:
		return Step{}, false
	}
	return step, true
}

// elsewhere returns another node that has the unit and should not have it, or "".
func (s *state) elsewhere(name, here string) string {
	for _, node := range s.seen[name] {
		if node != here && !slices.Contains(s.holders[name], node) {
			return node
		}
	}
	return ""
}

// stop returns the step for a unit that should not exist.
func (s *state) stop(n *unit.Node, a Actual, o Observed) Step {
	step := Step{Op: Stop, Node: n.Name, Name: a.Name, Job: a.Job, Slot: a.Slot, Runtime: a.Runtime,
		Was: o.applied(a.Name), Reason: "no file asks for it any more"}
	if to := s.holders[a.Name]; len(to) > 0 {
		step.Reason = "it moves to " + strings.Join(to, ", ")
	} else if step.Was == nil {
		step.Reason = "it has the cluster's mark, and no file asks for it"
	}
	return step
}

func firewall(n *unit.Node, o Observed) (Step, bool) {
	was := ""
	if o.Applied != nil {
		was = o.Applied.Firewall
	}
	step := Step{Op: Firewall, Node: n.Name, Diff: diffText("firewall", was, n.Firewall)}
	switch {
	case n.Firewall == was && (n.Firewall == "") == (o.Firewall == "") && (o.whole() || o.Phase == ""):
		return Step{}, false
	case n.Firewall == "" && o.Firewall == "":
		return Step{}, false
	case n.Firewall == "":
		step.Reason = "no file asks for the table any more"
	case o.Firewall == "":
		step.Reason = "the table is not there"
	case n.Firewall != was:
		step.Reason = "its text changed"
	default:
		step.Reason = "the last change was interrupted (" + o.Phase + ")"
	}
	return step, true
}

// dependencies finds the nodes that the plan depends on, and rejects a plan that depends on an unobserved node.
func (s *state) dependencies(nodes []unit.Node) error {
	jobs, exclusive := map[string]bool{}, ""
	addresses := []string{}
	changed := map[string]bool{}
	for _, step := range s.plan.Steps {
		changed[step.Node] = true
		if step.Job != "" {
			jobs[step.Job] = true
		}
		if step.Unit != nil && step.Unit.Exclusive && step.Op != Await && step.Op != Replace {
			exclusive = step.Name
		}
		for _, u := range []*unit.Unit{step.Unit, step.Was} {
			if u != nil && u.Address != "" {
				addresses = append(addresses, u.Address)
			}
		}
	}
	if exclusive != "" {
		if err := s.onceOnly(nodes, exclusive); err != nil {
			return err
		}
	}
	reads := map[string]bool{}
	for i := range nodes {
		n := &nodes[i]
		// An exclusive unit may be on any node: it may have moved between two observations.
		if changed[n.Name] || exclusive != "" || s.counts(n, s.observed[n.Name], jobs, addresses) {
			reads[n.Name] = true
		}
	}
	s.interrupted(reads)
	for i := range nodes {
		if !reads[nodes[i].Name] || slices.Contains(s.options.Fenced, nodes[i].Name) {
			continue
		}
		if err := s.countOn(&nodes[i], changed); err != nil {
			return err
		}
	}
	slices.Sort(s.plan.Reads)
	return nil
}

// interrupted adds the other nodes of interrupted changes: their client may have lost one node and still be changing
// the others.
func (s *state) interrupted(reads map[string]bool) {
	for grown := true; grown; {
		grown = false
		for name := range reads {
			for _, other := range s.observed[name].With {
				grown = grown || !reads[other]
				reads[other] = true
			}
		}
	}
}

// countOn adds a node to the nodes that are locked. Unavailable if it was not observed, unless its state is out,
// maintenance or left.
func (s *state) countOn(n *unit.Node, changed map[string]bool) error {
	o := s.observed[n.Name]
	if o.Error != "" || o.Node == "" {
		if n.State == "out" || n.State == "maintenance" || n.State == left {
			return nil
		}
		return croft.Errorf(croft.Unavailable, "%s does not answer, and a change relies on it: %s; repair it, or "+
			"write state: out into its file and place again", n.Name, cmp.Or(o.Error, "nobody asked"))
	}
	s.plan.Observed[n.Name] = o.Digest()
	if !changed[n.Name] {
		s.plan.Reads = append(s.plan.Reads, n.Name)
	}
	return nil
}

// onceOnly refuses to start an exclusive unit that may run elsewhere. Errors: Unavailable if a node was not observed;
// Conflict if the unit is on another node and this plan does not stop it there.
func (s *state) onceOnly(nodes []unit.Node, exclusive string) error {
	for _, n := range nodes {
		o := s.observed[n.Name]
		if slices.Contains(s.options.Fenced, n.Name) {
			continue
		}
		if o.Error != "" || o.Node == "" {
			return croft.Errorf(croft.Unavailable, "%s may run on %s, which was not read (%s), and it may not run "+
				"twice: make sure that the node is off and confirm that with --fenced %s", exclusive, n.Name,
				cmp.Or(o.Error, "it was not asked"), n.Name)
		}
	}
	for _, step := range s.plan.Steps {
		if step.Unit == nil || !step.Unit.Exclusive || step.Op == Await {
			continue
		}
		for _, n := range nodes {
			a := s.observed[n.Name].unit(step.Name)
			if a == nil || n.Name == step.Node || slices.Contains(s.options.Fenced, n.Name) {
				continue
			}
			if !slices.ContainsFunc(s.plan.Steps, func(other Step) bool {
				return other.Op == Stop && other.Node == n.Name && other.Name == step.Name
			}) {
				return croft.Errorf(croft.Conflict, "%s is on %s, where this plan does not stop it, and it may not "+
					"run twice: include %s in --limit", step.Name, n.Name, n.Name)
			}
		}
	}
	return nil
}

// counts reports whether the plan depends on what a node runs: the node has a unit of a changed job or a unit whose
// address a changed firewall names, or its firewall names the address of a changed unit.
func (s *state) counts(n *unit.Node, o Observed, jobs map[string]bool, addresses []string) bool {
	for _, u := range n.Units {
		if jobs[u.Job] {
			return true
		}
		if u.Address == "" {
			continue
		}
		for _, step := range s.plan.Steps {
			if step.Op == Firewall && strings.Contains(strings.Join(step.Diff, "\n"), u.Address) {
				return true
			}
		}
	}
	if slices.ContainsFunc(o.Units, func(a Actual) bool { return jobs[a.Job] }) {
		return true
	}
	return slices.ContainsFunc(addresses, func(a string) bool { return strings.Contains(n.Firewall, a) })
}
