package plan

import (
	"fmt"
	"slices"
	"strings"
)

// Cause is the reason why a node differs from the files.
type Cause string

// The causes. Drift is a change on the node itself: the files of the node have not changed.
const (
	Drift   Cause = "drift"
	Pending Cause = "pending" // the files changed and have not been applied yet
	Unseen  Cause = "unseen"  // the node does not answer
	// Unconfirmed is a change that was not confirmed, and that the node no longer reverts itself because it restarted.
	Unconfirmed Cause = "unconfirmed"
)

// A Difference is one difference between a node and the files.
type Difference struct {
	Node  string `json:"node"`
	Name  string `json:"name,omitempty"` // the name of the unit
	Cause Cause  `json:"cause"`
	Op    Op     `json:"op,omitempty"` // the operation that apply would do
	Text  string `json:"text"`
}

// Audit compares the observed state with the desired one. It holds no locks, so its result may include changes of an
// apply in progress.
func Audit(want Desired, found []Observed, options Options) ([]Difference, error) {
	list := []Difference{}
	at := map[string]Observed{}
	for _, o := range found {
		at[o.Node] = o
		if o.Error != "" {
			list = append(list, Difference{Node: o.Node, Cause: Unseen, Text: o.Error})
		}
		for _, title := range o.Unwatched {
			_, name, _ := strings.Cut(title, " ")
			list = append(list, Difference{Node: o.Node, Name: name, Cause: Unconfirmed, Text: unconfirmed(title)})
		}
	}
	p, err := Compute(want, found, options)
	if err != nil && len(p.Steps) == 0 {
		return list, nil // the unobserved nodes are already in the list
	}
	for _, s := range p.Steps {
		list = append(list, Difference{Node: s.Node, Name: s.Name, Op: s.Op, Cause: cause(s, at[s.Node]),
			Text: s.Reason})
	}
	slices.SortStableFunc(list, func(a, b Difference) int { return strings.Compare(a.Node, b.Node) })
	return list, nil
}

func unconfirmed(title string) string {
	return title + ": the node restarted before the change was confirmed, and the next apply makes it undo the change"
}

// cause determines the cause of a step from the applied state: if that equals the desired state, the node itself was
// changed.
func cause(s Step, o Observed) Cause {
	switch {
	case !o.whole():
		return Pending
	case s.Op == Firewall:
		if len(s.Diff) > 0 {
			return Pending
		}
		return Drift
	case s.Op == Stop && s.Was == nil, s.Op == Start:
		return Drift
	case s.Unit != nil:
		was, a := o.applied(s.Name), o.unit(s.Name)
		if was != nil && was.Hash() == s.Unit.Hash() && (a == nil || !a.OldDefinition || a.OldImage) {
			return Drift
		}
	}
	return Pending
}

// Metrics returns the nodes and differences in the text format of Prometheus.
func Metrics(want Desired, found []Observed, differences []Difference) string {
	var b strings.Builder
	head := func(name, help string) {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s gauge\n", name, help, name)
	}
	wanted := map[string]int{}
	for _, n := range want.Nodes {
		wanted[n.Name] = len(n.Units)
	}
	head("croft_grid_node_up", "Whether the node answered.")
	for _, o := range found {
		fmt.Fprintf(&b, "croft_grid_node_up{node=%q} %d\n", o.Node, number(o.Error == ""))
	}
	head("croft_grid_node_interrupted", "Whether the last change of the node was interrupted or taken back.")
	for _, o := range found {
		fmt.Fprintf(&b, "croft_grid_node_interrupted{node=%q} %d\n", o.Node, number(o.Phase != "" && !o.whole()))
	}
	head("croft_grid_node_unconfirmed", "Changes that were not confirmed before the node restarted.")
	for _, o := range found {
		fmt.Fprintf(&b, "croft_grid_node_unconfirmed{node=%q} %d\n", o.Node, len(o.Unwatched))
	}
	head("croft_grid_node_epoch", "How many changes and breaks of its lock the node has seen.")
	for _, o := range found {
		fmt.Fprintf(&b, "croft_grid_node_epoch{node=%q} %d\n", o.Node, o.Epoch)
	}
	head("croft_grid_units_wanted", "Units that the files want on the node.")
	for _, o := range found {
		fmt.Fprintf(&b, "croft_grid_units_wanted{node=%q} %d\n", o.Node, wanted[o.Node])
	}
	head("croft_grid_units_running", "Units of the cluster that run on the node.")
	for _, o := range found {
		running := 0
		for _, u := range o.Units {
			running += number(u.Running)
		}
		fmt.Fprintf(&b, "croft_grid_units_running{node=%q} %d\n", o.Node, running)
	}
	head("croft_grid_differences", "Things that the node has otherwise than the files say, by cause.")
	for _, o := range found {
		for _, c := range []Cause{Drift, Pending} {
			n := 0
			for _, d := range differences {
				n += number(d.Node == o.Node && d.Cause == c)
			}
			fmt.Fprintf(&b, "croft_grid_differences{node=%q,cause=%q} %d\n", o.Node, c, n)
		}
	}
	return b.String()
}

func number(yes bool) int {
	if yes {
		return 1
	}
	return 0
}
