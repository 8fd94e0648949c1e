package watch

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"croft/grid/state"
	"croft/internal/wording"
)

const (
	missed     = 3  // beats that a node misses before it is suspect
	maxFlaps   = 3  // flaps that count: each doubles a node's grace
	flapFor    = 30 // a flap counts for this many graces
	recentFor  = 10 // a node that became out counts as just lost for this many graces
	viaMost    = 3  // a node is dialed through at most this many other nodes
	graceShare = 2  // a lease is at most a grace divided by this; so a node's clock may run at half the speed
)

// Rules are the times after which the watch acts.
type Rules struct {
	Every time.Duration // time between two beats of a node
	Grace time.Duration // silence after which a node may be dead
}

// MaxLease returns the longest lease that a node may ask for.
func (r Rules) MaxLease() time.Duration { return r.Grace / graceShare }

// An Answer is the answer to a question about a machine. The zero Answer is Unknown.
type Answer string

// The answers.
const (
	Unknown Answer = ""
	Yes     Answer = "yes"
	No      Answer = "no"
)

// Input is everything that a decision depends on. Times are on the controller's clock, since its boot.
type Input struct {
	Now    time.Duration
	Rules  Rules
	Leader time.Duration // since when this controller leads; until then, another one may have granted leases
	Nodes  []Node        // with unique names
}

// Node is what the controller knows about a node.
type Node struct {
	Name      string
	Site      string // the path of its site's directory; empty: no site
	State     string // as in its file
	Marked    bool   // the watch wrote that state
	Local     bool   // the controller itself
	Exclusive int    // number of slots of exclusive jobs on it
	Others    int    // number of slots of other jobs on it

	Beats   bool          // it has sent at least one beat
	Last    time.Duration // when its last beat arrived
	Lease   time.Duration // the lease that its last beat asked for; 0: no lease ends its exclusive jobs
	Granted time.Duration // when the last beat arrived that got a lease
	Flaps   int           // how often it fell silent and came back, in the last 30 graces
	OutAt   time.Duration // since when this controller knows that it is out, if it is

	Direct  Answer            // the answer to a dial from here
	Through map[string]Answer // the answers to dials from other nodes, by their names
	Fenced  Answer            // whether the fence said that it is off
}

// Status is what a decision concludes about a node.
type Status string

// The statuses.
const (
	Here      Status = "here"      // the controller's own machine
	Alive     Status = "alive"     // beats arrive
	Quiet     Status = "quiet"     // no beats arrive, but it answers a dial
	Suspect   Status = "suspect"   // it missed three beats
	Dead      Status = "dead"      // silent for its grace, and neither the controller nor another node reaches it
	Unwatched Status = "unwatched" // it never sent a beat, or it is in maintenance
	Gone      Status = "gone"      // already out or draining
	Returned  Status = "returned"  // out, and its beats arrive
)

// Verdict is the conclusion about one node.
type Verdict struct {
	Node   string        `json:"node"`
	State  string        `json:"state"`
	Status Status        `json:"status"`
	Silent time.Duration `json:"-"`
	For    int64         `json:"silent"` // Silent in seconds
	Reason string        `json:"reason,omitempty"`
}

// Dial is the question whether a node answers this controller and the nodes in Via.
type Dial struct {
	Node string
	Via  []string
}

// Action is a new state of a node.
type Action struct {
	Node   string `json:"node"`
	State  string `json:"state"` // out; or maintenance: all its slots move elsewhere except the exclusive ones
	Reason string `json:"reason"`
}

// Decision is the result of Decide.
type Decision struct {
	Verdicts []Verdict // by name
	Dial     []Dial    // the questions whose answers are needed to decide more
	Fence    []string  // dead nodes whose fence must be asked
	Actions  []Action  // by name
	Held     []string  // actions that are not taken, and why
}

// Decide judges all nodes. It is a pure function of its input.
func Decide(in Input) Decision {
	in.Nodes = slices.Clone(in.Nodes)
	slices.SortFunc(in.Nodes, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	var d Decision
	var dead []Node
	eligible := false
	for _, n := range in.Nodes {
		v := in.judge(n)
		d.Verdicts = append(d.Verdicts, v)
		if v.Status == Dead {
			dead = append(dead, n)
		}
		eligible = eligible || v.Status == Suspect && v.Silent >= in.grace(n)
	}
	if eligible {
		d.Dial = in.dials(d.Verdicts)
	}
	if len(dead) == 0 {
		return d
	}
	if why := in.guard(d.Verdicts); why != "" {
		for _, n := range dead {
			d.Held = append(d.Held, n.Name+" seems dead, and nothing is done: "+why)
		}
		return d
	}
	for _, n := range dead {
		in.act(&d, n, d.verdict(n.Name).Reason)
	}
	return d
}

func (d Decision) verdict(name string) Verdict {
	at, _ := slices.BinarySearchFunc(d.Verdicts, name, func(v Verdict, name string) int {
		return strings.Compare(v.Node, name)
	})
	return d.Verdicts[at]
}

// watched reports whether the watch may declare a node dead: it is up, or the watch put it into maintenance.
func (n Node) watched() bool {
	return !n.Local && n.Beats && (n.State == state.Up || n.State == state.Maintenance && n.Marked)
}

// grace returns how long a node may be silent: the grace is doubled for each flap.
func (in Input) grace(n Node) time.Duration { return in.Rules.Grace << min(max(n.Flaps, 0), maxFlaps) }

func (in Input) judge(n Node) Verdict {
	v := Verdict{Node: n.Name, State: n.State, Silent: max(in.Now-n.Last, 0)}
	says := func(s Status, format string, args ...any) Verdict {
		v.Status, v.Reason = s, fmt.Sprintf(format, args...)
		return v
	}
	silent := v.Silent >= missed*in.Rules.Every
	if n.Local || !n.Beats {
		v.Silent = 0
	}
	v.For = int64(v.Silent / time.Second)
	switch {
	case n.Local:
		return says(Here, "")
	case (n.State == state.Out || n.State == state.Drain) && n.Beats && !silent && n.State == state.Out:
		return says(Returned, "its beats arrive: croft grid node up %s lets it have slots again", n.Name)
	case n.State == state.Out || n.State == state.Drain:
		return says(Gone, "it is %s", n.State)
	case !n.Beats:
		return says(Unwatched, "it has never sent a beat")
	case !n.watched():
		return says(Unwatched, "it is in %s", n.State)
	case !silent && n.State == state.Maintenance:
		return says(Alive, "its beats arrive: croft grid node up %s lets it have slots again", n.Name)
	case !silent:
		return says(Alive, "")
	}
	return in.silent(n, v)
}

// silent judges a node whose beats do not arrive.
func (in Input) silent(n Node, v Verdict) Verdict {
	quiet := fmt.Sprintf("silent for %s", wording.Duration(v.Silent.Truncate(time.Second)))
	var yes, no []string
	for via, a := range n.Through {
		switch a {
		case Yes:
			yes = append(yes, via)
		case No:
			no = append(no, via)
		}
	}
	slices.Sort(yes)
	slices.Sort(no)
	v.Status = Suspect
	switch grace := in.grace(n); {
	case n.Direct == Yes:
		v.Status, v.Reason = Quiet, quiet+", and it answers a dial: look why its beats do not arrive"
	case len(yes) > 0:
		v.Status, v.Reason = Quiet, quiet+", and "+yes[0]+" reaches it: this controller is cut off from it"
	case v.Silent < grace && n.Flaps > 0:
		v.Reason = fmt.Sprintf("%s; it has come back %d times lately, so its grace is %s", quiet, n.Flaps,
			wording.Duration(grace))
	case v.Silent < grace:
		v.Reason = fmt.Sprintf("%s of a grace of %s", quiet, wording.Duration(grace))
	case n.Direct != No:
		v.Reason = quiet + ", and nobody has dialed it yet"
	case len(no) == 0:
		v.Reason = quiet + ", it answers no dial, and no other node could be asked to dial it"
	default:
		v.Status, v.Reason = Dead, quiet+"; it answers no dial, neither from here nor from "+strings.Join(no, ", ")
	}
	return v
}

// dials returns the open questions. It dials all suspects, because the guard counts each of them as lost until it
// answers.
func (in Input) dials(verdicts []Verdict) []Dial {
	var list []Dial
	for i, n := range in.Nodes {
		if verdicts[i].Status != Suspect || n.Direct != Unknown {
			continue
		}
		var via []Node
		for j, other := range in.Nodes {
			if verdicts[j].Status == Alive {
				via = append(via, other)
			}
		}
		slices.SortStableFunc(via, func(a, b Node) int { // nodes of the same site first
			return cmp.Compare(btoi(a.Site != n.Site), btoi(b.Site != n.Site))
		})
		d := Dial{Node: n.Name}
		for _, other := range via[:min(len(via), viaMost)] {
			d.Via = append(d.Via, other.Name)
		}
		list = append(list, d)
	}
	return list
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
