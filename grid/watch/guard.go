package watch

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"croft/grid/state"
	"croft/internal/wording"
)

// guard returns why no action may be taken: more than a third of all nodes, or all nodes of a site with several, are
// lost at once, so this controller may be the one that is cut off. A node that the watch recently made out counts as
// lost, so that a cluster is not emptied node by node. Empty: actions may be taken.
func (in Input) guard(verdicts []Verdict) string {
	all, lost := 0, 0
	sites := map[string][2]int{} // numbers of watched and of lost nodes
	nodes := map[string]int{}    // number of nodes of each site, in any state
	for i, n := range in.Nodes {
		recent := n.State == state.Out && n.Marked && in.Now-max(n.OutAt, in.Leader) < recentFor*in.Rules.Grace &&
			verdicts[i].Status == Gone
		nodes[n.Site]++
		if !n.watched() && !recent {
			continue
		}
		gone := btoi(recent || verdicts[i].Status == Suspect || verdicts[i].Status == Dead)
		all, lost = all+1, lost+gone
		if n.Site != "" {
			c := sites[n.Site]
			sites[n.Site] = [2]int{c[0] + 1, c[1] + gone}
		}
	}
	if 3*lost > all {
		return fmt.Sprintf(
			"%d of %d watched nodes are lost or were just made out, more than a third: this controller itself may "+
				"be cut off",
			lost,
			all,
		)
	}
	for _, site := range slices.Sorted(maps.Keys(sites)) {
		if c := sites[site]; c[0] == c[1] && nodes[site] > 1 {
			return fmt.Sprintf("all nodes of %s are lost (%d): this controller itself may be cut off from it", site,
				c[0])
		}
	}
	return ""
}

// act adds to the decision the actions for a dead node.
func (in Input) act(d *Decision, n Node, reason string) {
	safe, why := in.stopped(n)
	switch {
	case n.Exclusive == 0:
		d.Actions = append(d.Actions, Action{n.Name, state.Out, reason})
	case safe:
		d.Actions = append(d.Actions, Action{n.Name, state.Out, reason + "; " + why})
	default:
		if n.Fenced == Unknown {
			d.Fence = append(d.Fence, n.Name)
		}
		if n.Others > 0 && n.State == state.Up {
			d.Actions = append(d.Actions, Action{n.Name, state.Maintenance, reason + "; its exclusive jobs stay: " +
				why})
		}
		d.Held = append(d.Held, fmt.Sprintf("%s is dead, and its %d slots of exclusive jobs stay there: %s", n.Name,
			n.Exclusive, why))
	}
}

// stopped reports whether the exclusive jobs of a silent node have certainly ended, and why.
func (in Input) stopped(n Node) (bool, string) {
	since := in.Now - max(n.Granted, in.Leader)
	switch {
	case n.Fenced == Yes:
		return true, "its fence says that it is off"
	case n.Lease <= 0 && n.Fenced == No:
		return false, "its fence does not say that it is off, and it has no lease that runs out"
	case n.Lease <= 0:
		return false, "no fence says that it is off, and it has no lease that runs out"
	case n.Lease > in.Rules.MaxLease():
		return false, fmt.Sprintf("its lease of %s is longer than half of the grace", wording.Duration(n.Lease))
	case since < in.Rules.Grace:
		return false, fmt.Sprintf("its lease runs out within %s",
			wording.Duration((in.Rules.Grace - since).Truncate(time.Second)))
	}
	return true, fmt.Sprintf("its lease of %s has run out", wording.Duration(n.Lease))
}
