package place

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"croft"
	"croft/grid/state"
)

// result compares the decision with the current links.
func (d *deciding) result() (*Result, error) {
	r := &Result{}
	for _, w := range d.warnings {
		r.Warnings = append(r.Warnings, w.String())
	}
	var errs []error
	for _, p := range d.jobs {
		got := len(p.has)
		r.Slots += got
		if least := p.job.Min; !p.rule.Every && got < min(least, p.want) {
			errs = append(errs, croft.Errorf(croft.NoCapacity,
				"%s: the job needs %s at least, and %d can be had%s", p.job.Path, nodes(least), got, d.explain(p)))
		} else if got < p.want {
			r.Warnings = append(r.Warnings, fmt.Sprintf("%s: the job wants %s, and %d can be had%s", p.job.Path,
				nodes(p.want), got, d.explain(p)))
		}
		d.changes(r, p)
	}
	if len(errs) > 0 {
		slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
		return nil, errors.Join(errs...)
	}
	for _, slot := range d.s.Orphans {
		r.Changes = append(r.Changes, Change{Job: slot.Job, Slot: slot.Number, From: nameOf(slot), link: slot.Link,
			Reason: "there is no such job any more"})
	}
	slices.SortFunc(r.Changes, func(a, b Change) int {
		return cmp.Or(strings.Compare(a.Job, b.Job), cmp.Compare(a.Slot, b.Slot))
	})
	slices.Sort(r.Warnings)
	for _, c := range r.Changes {
		if c.From != "" && c.To != "" && c.From != c.To {
			r.Moves++
		}
	}
	if d.ids.Text() != d.s.IDs.Text() {
		r.IDs = &d.ids
	}
	var has []*state.Node
	for _, p := range d.jobs {
		has = slices.AppendSeq(has, maps.Values(p.has))
	}
	r.Roster = d.s.RosterText(has)
	return r, nil
}

func nodes(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}

func nameOf(s state.Slot) string {
	if s.Node != nil {
		return s.Node.Name
	}
	return strings.TrimSuffix(path.Base(s.Target), ".yaml")
}

// changes adds the changes of one job to r.
func (d *deciding) changes(r *Result, p *placing) {
	had := map[int]state.Slot{}
	for _, slot := range p.job.Slots {
		had[slot.Number] = slot
	}
	numbers := map[int]bool{}
	for slot := range had {
		numbers[slot] = true
	}
	for slot := range p.has {
		numbers[slot] = true
	}
	for _, number := range slices.Sorted(maps.Keys(numbers)) {
		before, there := had[number]
		n := p.has[number]
		c := Change{Job: p.job.Name, Slot: number, link: fmt.Sprintf("alloc/%s/%d", p.job.Name, number),
			Reason: p.why[number]}
		if there {
			c.From = nameOf(before)
		}
		if n != nil {
			c.To, c.target = n.Name, n.Path
		}
		switch {
		case there && n == before.Node && n != nil && n.Path == before.Target:
			continue
		case there && n == before.Node && n != nil:
			c.Reason = "the node's file is elsewhere now"
		case !there:
			c.Reason = "the slot had no node"
		case c.Reason == "" && d.o.Rebalance:
			c.Reason = "the rule places it there"
		case c.Reason == "":
			c.Reason = "another slot of the job has moved"
		}
		r.Changes = append(r.Changes, c)
	}
}

// explain describes why other nodes cannot be used for a job, with the number of nodes for each reason.
func (d *deciding) explain(p *placing) string {
	counts := map[string]int{}
	on := map[*state.Node]bool{}
	for _, n := range p.has {
		on[n] = true
	}
	free := 0
	for _, n := range d.s.Leaves {
		why := d.forbids(p, n)
		switch {
		case on[n]:
			continue
		case d.without[n]:
			why = "left out"
		case n.State != state.Up:
			why = n.State
		case why != "" && p.rule.Pin == "":
			why = "not of the facts " + p.job.Filter()
		case why != "":
			why = "not " + p.rule.Pin
		case n.Weight == 0:
			why = "of weight 0"
		default:
			if key := d.full(p, n); key != "" {
				why = "without enough " + key
			} else if port := d.takenForAny(p, n); port != "" {
				why = "whose port " + port + " another job has"
			}
		}
		if why == "" {
			free++
			continue
		}
		counts[why]++
	}
	var parts []string
	for _, why := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[why], why))
	}
	if free > 0 {
		parts = append(parts, fmt.Sprintf("%d where the rule %s has no place", free, p.rule.Text))
	}
	if len(parts) == 0 {
		return "; the cluster has " + nodes(len(d.s.Leaves))
	}
	return fmt.Sprintf("; of the other nodes, %s", strings.Join(parts, ", "))
}
