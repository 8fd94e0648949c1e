// Package place decides which nodes a cluster's jobs have, and writes that down as links. Decide is pure: from the same
// state comes the same result, whatever the order of the files, and where everything is placed already, none is moved.
//
// What a job has it keeps, unless the node is gone, out, full or of other facts than the job wants, or the job's rule
// forbids it beside the other slots. Missing slots are filled by the rule, as CRUSH has it, jobs of greater priority
// first.
package place

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"croft"
	"croft/grid/state"
	"croft/grid/unit"
)

// Options are how to place.
type Options struct {
	Rebalance bool     // keep nothing that the rules would place elsewhere
	Without   []string // nodes that are taken for out
}

// Result is what is to change. Nothing has been written.
type Result struct {
	Changes  []Change
	Slots    int        // that there are afterwards
	Moves    int        // changes that take a slot from one node to another
	Warnings []string   // jobs that have fewer slots than they want, and those of Check
	IDs      *state.IDs // to be written; nil: as they were
	Roster   string     // the file roster.yaml; "": as it was
}

// Change is a slot that gets a node, another one, or none any more.
type Change struct {
	Job    string `json:"job"`
	Slot   int    `json:"slot"`
	From   string `json:"from,omitempty"` // the node; empty: it had none, or one that is gone
	To     string `json:"to,omitempty"`   // empty: the slot is removed
	Reason string `json:"reason"`

	link, target string
}

// maxRounds are enough for what a slot's move leaves to others.
const maxRounds = 8

// Decide places everything. NoCapacity, several joined: a job would have fewer slots than it needs. Invalid or
// NotFound: a rule is wrong.
func Decide(s *state.State, o Options) (*Result, error) {
	d := &deciding{s: s, o: o, trees: map[string]*tree{}, ids: s.IDs.Clone(), without: map[*state.Node]bool{}}
	for _, name := range o.Without {
		n := s.Node(name)
		if n == nil {
			return nil, croft.Errorf(croft.NotFound, "there is no node %s%s", name, nodeHint(s, name))
		}
		d.without[n] = true
	}
	if err := d.prepare(); err != nil {
		return nil, err
	}
	for round := range maxRounds {
		before := make([]map[int]*state.Node, len(d.jobs))
		for i, j := range d.jobs {
			before[i] = j.has
		}
		d.round(round == 0 && o.Rebalance)
		if same(before, d.jobs) {
			break
		}
	}
	return d.result()
}

func same(before []map[int]*state.Node, jobs []*placing) bool {
	for i, j := range jobs {
		if len(before[i]) != len(j.has) {
			return false
		}
		for slot, n := range before[i] {
			if j.has[slot] != n {
				return false
			}
		}
	}
	return true
}

// deciding is one decision.
type deciding struct {
	s       *state.State
	o       Options
	jobs    []*placing // by priority and name
	trees   map[string]*tree
	ids     state.IDs
	without map[*state.Node]bool
	used    map[*state.Node]*load

	warnings []state.Problem // of policies
}

// load is what the slots of a node use.
type load struct {
	slots int
	uses  state.Amounts
	ports ports
}

// placing is a job that is being placed.
type placing struct {
	job  *state.Job
	rule Rule
	tree *tree
	c    *compiled
	x    uint32
	want int
	has  map[int]*state.Node
	kept map[int]*state.Node // whose ports are counted already
	why  map[int]string      // slots that lost their node, and the reason

	ports     func(slot int, n *state.Node) []unit.Port // of the node, that a slot takes
	portsVary bool                                      // by slot or node
}

func (d *deciding) prepare() error {
	var errs []error
	for _, j := range d.s.Jobs {
		p := &placing{job: j, x: Input(j.Name), want: j.Want, has: map[int]*state.Node{}, why: map[int]string{}}
		p.ports, p.portsVary = d.s.Ports(j)
		if err := d.resolve(p); err != nil {
			at := j.PolicyAt
			if j.Policy == "" {
				at = state.Position{File: j.Path}
			}
			errs = append(errs, fmt.Errorf("%s: the policy of %s: %w", at, j.Name, err))
			continue
		}
		if b := d.sharedHost(p); b != nil {
			d.warnings = append(d.warnings, state.Problem{At: j.PolicyAt, Text: fmt.Sprintf("the policy %s of %s: no "+
				"directory below nodes/ is of type host, so each node counts as a host, and %s has several nodes; if it is a "+
				"host, write type: host into its _.yaml", p.rule.Text, j.Name, b.Path)})
		}
		for _, slot := range j.Slots {
			if slot.Node != nil {
				p.has[slot.Number] = slot.Node
			} else {
				p.why[slot.Number] = "its node is gone"
			}
		}
		d.jobs = append(d.jobs, p)
	}
	slices.SortFunc(d.jobs, func(a, b *placing) int {
		return cmp.Or(cmp.Compare(b.job.Priority, a.job.Priority), strings.Compare(a.job.Name, b.job.Name))
	})
	return errors.Join(errs...)
}

// sharedHost returns a directory that its author may take for a host: the job itself says host in its policy, no
// directory is one, and this one has several nodes. nil: there is none.
func (d *deciding) sharedHost(p *placing) *state.Bucket {
	if !strings.Contains(p.job.Policy, "host") || !withoutHosts(p.tree.m) ||
		!slices.ContainsFunc(p.rule.Policy, selectsHost) {
		return nil
	}
	for _, b := range d.s.Buckets {
		if b.Parent != nil && len(b.Nodes) > 1 {
			return b
		}
	}
	return nil
}

func (d *deciding) resolve(p *placing) (err error) {
	if p.rule, err = Resolve(d.s, p.job.Policy); err != nil {
		return err
	}
	if p.rule.Replicas > 0 && p.want != 0 && p.want != p.rule.Replicas {
		return croft.Errorf(croft.Invalid, "%s is for %d replicas, and the job wants %d", p.rule.Text, p.rule.Replicas,
			p.want)
	}
	filter := p.job.Filter()
	if p.tree = d.trees[filter]; p.tree == nil {
		if p.tree, err = newTree(d.s, p.job, &d.ids); err != nil {
			return err
		}
		d.trees[filter] = p.tree
	}
	if p.rule.Every || p.rule.Pin != "" {
		return nil
	}
	if p.c, err = p.tree.compile(p.rule); err != nil {
		return croft.Errorf(croft.Invalid, "%w", err)
	}
	return nil
}

// round places all jobs once: first each keeps what it may, then what is missing is filled.
func (d *deciding) round(afresh bool) {
	d.used = map[*state.Node]*load{}
	for _, n := range d.s.Leaves {
		d.used[n] = &load{uses: state.Amounts{}}
	}
	had := make([]map[int]*state.Node, len(d.jobs))
	for i, p := range d.jobs {
		had[i] = p.has
		if afresh {
			p.has, p.kept = map[int]*state.Node{}, nil
			continue
		}
		d.keep(p)
	}
	for i, p := range d.jobs {
		switch {
		case p.rule.Every:
			d.everywhere(p, had[i])
		case p.rule.Pin != "":
			d.pinned(p)
		default:
			d.fill(p, had[i], afresh)
		}
		for slot, n := range p.has {
			if p.kept[slot] != n {
				d.claim(p, slot, n)
			}
		}
	}
}

// keep drops what a job may not keep, whatever its rule says, and counts the rest.
func (d *deciding) keep(p *placing) {
	had := p.has
	p.has = map[int]*state.Node{}
	on := map[*state.Node]bool{}
	for _, slot := range sorted(had) {
		n := had[slot]
		why := d.forbids(p, n)
		switch {
		case !p.rule.Every && slot >= p.want:
			why = "fewer replicas are wanted"
		case on[n]:
			why = "the job has another slot on " + n.Name
		case why == "":
			if key := d.full(p, n); key != "" {
				why = n.Name + " has not enough " + key
			} else if port := d.taken(p, slot, n); port != "" {
				why = "another job has the port " + port + " of " + n.Name
			}
		}
		if why != "" {
			p.why[slot] = why
			continue
		}
		on[n] = true
		p.has[slot] = n
		d.count(p, n, 1)
		d.claim(p, slot, n)
	}
	p.kept = maps.Clone(p.has)
}

// forbids says why a job may not keep a node; empty: it may.
func (d *deciding) forbids(p *placing, n *state.Node) string {
	switch {
	case d.without[n]:
		return "without " + n.Name
	case n.State == state.Out || n.State == state.Drain:
		return n.Name + " is " + n.State
	case p.rule.Pin != "" && n.Name != p.rule.Pin:
		return "the job is pinned to " + p.rule.Pin
	}
	for _, fact := range p.job.Require {
		if !n.Matches(fact) {
			return n.Name + " has not the fact " + fact
		}
	}
	for _, fact := range p.job.Avoid {
		if n.Matches(fact) {
			return n.Name + " has the fact " + fact
		}
	}
	return ""
}

// full returns what a node has not enough of for a slot of the job; empty: it has enough.
func (d *deciding) full(p *placing, n *state.Node) string {
	short := ""
	for key, need := range p.job.Uses {
		if d.used[n].uses[key]+need > n.Capacity[key] && need > 0 && (short == "" || key < short) {
			short = key
		}
	}
	return short
}

func (d *deciding) count(p *placing, n *state.Node, sign int) {
	l := d.used[n]
	l.slots += sign
	for key, need := range p.job.Uses {
		l.uses[key] += int64(sign) * need
	}
}

// usable reports whether a job may get a node that it does not have.
func (d *deciding) usable(p *placing, n *state.Node) bool {
	return n.Weight > 0 && n.State == state.Up && !d.without[n] && p.job.Admits(n) && d.full(p, n) == "" &&
		d.takenForAny(p, n) == ""
}

func sorted(has map[int]*state.Node) []int {
	slots := make([]int, 0, len(has))
	for slot := range has {
		slots = append(slots, slot)
	}
	slices.Sort(slots)
	return slots
}

// give puts nodes into the lowest free slots; those that the job had before, into their own.
func (p *placing) give(nodes []*state.Node, had map[int]*state.Node) {
	of := map[*state.Node]int{}
	for slot, n := range had {
		of[n] = slot
	}
	var rest []*state.Node
	for _, n := range nodes {
		slot, before := of[n]
		if _, taken := p.has[slot]; before && !taken && slot < max(p.want, len(had)) {
			p.has[slot] = n
			continue
		}
		rest = append(rest, n)
	}
	slot := 0
	for _, n := range rest {
		for p.has[slot] != nil {
			slot++
		}
		p.has[slot] = n
	}
}
