// Package place decides which nodes run a cluster's jobs, and stores the decision as symbolic links. Decide is pure:
// the same state gives the same result, whatever the order of the files. If all slots are placed already, none moves.
//
// A job keeps its nodes, except a node that is gone, out or draining, full, or without the facts that the job requires,
// and a node that the job's rule forbids in combination with the other slots. Missing slots are filled by the rule as
// in CRUSH, jobs of higher priority first.
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

// Options configures Decide.
type Options struct {
	Rebalance bool     // move every slot that the rules would place elsewhere
	Without   []string // nodes to treat as out
}

// Result contains the decided changes. They are not written yet.
type Result struct {
	Changes  []Change
	Slots    int        // number of slots after the changes
	Moves    int        // number of changes that move a slot from one node to another
	Warnings []string   // jobs with fewer slots than they want, and the warnings of Check
	IDs      *state.IDs // ids to write; nil: unchanged
	Roster   string     // content of the file roster.yaml; "": unchanged
}

// Change is a slot that gets a node, gets another node, or is removed.
type Change struct {
	Job    string `json:"job"`
	Slot   int    `json:"slot"`
	From   string `json:"from,omitempty"` // the former node, even if it is gone; empty: none
	To     string `json:"to,omitempty"`   // the new node; empty: the slot is removed
	Reason string `json:"reason"`

	link, target string
}

// maxRounds limits the rounds of Decide. The moves of one round can make further moves possible in the next.
const maxRounds = 8

// Decide places all jobs. Errors: NoCapacity, joined, for each job that would have fewer slots than its minimum;
// Invalid or NotFound if a rule or an option is not valid.
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
		d.placeJobs(round == 0 && o.Rebalance)
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

// deciding is the state of one decision.
type deciding struct {
	s       *state.State
	o       Options
	jobs    []*placing // highest priority first, then by name
	trees   map[string]*tree
	ids     state.IDs
	without map[*state.Node]bool
	used    map[*state.Node]*load

	warnings []state.Problem // warnings about policies
}

// load is the resource usage of a node's slots.
type load struct {
	slots int
	uses  state.Amounts
	ports ports
}

// placing is the state of placing one job.
type placing struct {
	job  *state.Job
	rule Rule
	tree *tree
	c    *compiled
	x    uint32
	want int
	has  map[int]*state.Node
	kept map[int]*state.Node // slots whose ports are already counted
	why  map[int]string      // the reason, for each slot that lost its node

	ports     func(slot int, n *state.Node) []unit.Port // the node's ports that a slot takes
	portsVary bool                                      // the ports depend on the slot or the node
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
				p.why[slot.Number] = "its node was removed"
			}
		}
		d.jobs = append(d.jobs, p)
	}
	slices.SortFunc(d.jobs, func(a, b *placing) int {
		return cmp.Or(cmp.Compare(b.job.Priority, a.job.Priority), strings.Compare(a.job.Name, b.job.Name))
	})
	return errors.Join(errs...)
}

// sharedHost returns a directory that the author of the job's policy may consider a host: the policy contains host, no
// directory is of type host, and this directory has several nodes. It returns nil if no such directory exists.
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

// placeJobs places all jobs once: first each job keeps the nodes that it may keep, then missing slots are filled.
func (d *deciding) placeJobs(afresh bool) {
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

// keep removes the nodes that a job may not keep under any rule, and counts the others.
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

// forbids returns the reason why a job may not keep a node, or "".
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

// full returns the resource of which a node has too little for another slot of the job, or "".
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

// give assigns nodes to the lowest free slots; nodes that the job had before return to their own slots.
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
