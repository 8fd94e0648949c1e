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
	missed     = 3  // beats, after which a node is suspect
	maxFlaps   = 3  // that lengthen a node's grace, each to twice as long
	flapFor    = 30 // graces that a flap counts
	recentFor  = 10 // graces that a node which was put out counts as just lost
	viaMost    = 3  // other nodes that a node is dialed through
	graceShare = 2  // parts of a grace, of which a lease may have one: clocks of nodes may be that much slower
)

// Rules are how patient the watch is.
type Rules struct {
	Every time.Duration // between two beats of a node
	Grace time.Duration // of silence, after which a node can be dead
}

// MaxLease is the longest lease that a node may ask for.
func (r Rules) MaxLease() time.Duration { return r.Grace / graceShare }

// An Answer is what became of a question to a machine. The zero Answer is that nobody knows.
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
	Leader time.Duration // since when this controller leads; another one may have granted leases until then
	Nodes  []Node        // each name once
}

// Node is what is known of a node.
type Node struct {
	Name      string
	Site      string // the directory of its site; empty: it is in none
	State     string // as in its file
	Marked    bool   // the watch wrote that state
	Local     bool   // the controller itself
	Exclusive int    // slots of exclusive jobs that it has
	Others    int    // slots of other jobs

	Beats   bool          // it has ever sent one
	Last    time.Duration // when the last one arrived
	Lease   time.Duration // that it asked for with its last beat; 0: nothing stops its exclusive jobs
	Granted time.Duration // when the last beat arrived that was answered with a lease
	Flaps   int           // times that it fell silent and came back lately
	OutAt   time.Duration // since when it is known here to be out, if it is

	Direct  Answer            // does it answer a dial?
	Through map[string]Answer // does it answer one from another node?
	Fenced  Answer            // did the fence say that it is off?
}

// Status is what a node is found to be.
type Status string

// The statuses.
const (
	Here      Status = "here"      // the controller itself
	Alive     Status = "alive"     // its beats arrive
	Quiet     Status = "quiet"     // its beats do not, and it answers
	Suspect   Status = "suspect"   // it missed three beats
	Dead      Status = "dead"      // silent for its grace, and nobody reaches it
	Unwatched Status = "unwatched" // it never sent a beat, or is in maintenance
	Gone      Status = "gone"      // out or drained already
	Returned  Status = "returned"  // out, and its beats arrive
)

// Verdict is what is found of one node.
type Verdict struct {
	Node   string        `json:"node"`
	State  string        `json:"state"`
	Status Status        `json:"status"`
	Silent time.Duration `json:"-"`
	For    int64         `json:"silent"` // the same in seconds
	Reason string        `json:"reason,omitempty"`
}

// Dial asks whether a node answers, this controller and other nodes.
type Dial struct {
	Node string
	Via  []string
}

// Action is a new state of a node.
type Action struct {
	Node   string `json:"node"`
	State  string `json:"state"` // out; maintenance: all but its exclusive slots go elsewhere
	Reason string `json:"reason"`
}

// Decision is what follows from an Input.
type Decision struct {
	Verdicts []Verdict // by name
	Dial     []Dial    // whose answers are needed to say more
	Fence    []string  // dead nodes whose fence is to be asked
	Actions  []Action  // by name
	Held     []string  // what would be done, and why it is not
}

// Decide judges all nodes. It depends on nothing but the input.
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

// watched reports whether a node may be found dead: it is up, or the watch took a part of its slots.
func (n Node) watched() bool {
	return !n.Local && n.Beats && (n.State == state.Up || n.State == state.Maintenance && n.Marked)
}

// grace is how long a node may be silent: twice as long for each time that it came back lately.
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

// dials lists the questions that are open: all suspects are dialed, since the guard counts each of them as lost until
// it answers.
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
		slices.SortStableFunc(via, func(a, b Node) int { // neighbors of its site first
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
