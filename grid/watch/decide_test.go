package watch

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"croft/grid/state"
)

// at is the time of the decisions in this file, and rules are their rules.
const at = time.Hour

var rules = Rules{Every: 10 * time.Second, Grace: time.Minute}

// fleet returns n nodes whose beats arrive, in sites of three.
func fleet(n int) []Node {
	var nodes []Node
	for i := range n {
		nodes = append(nodes, Node{Name: fmt.Sprintf("n%02d", i), Site: fmt.Sprintf("nodes/s%d", i/3), State: state.Up,
			Beats: true, Last: at - time.Second, Others: 1})
	}
	return nodes
}

// lost makes a node silent for a number of seconds, and unreachable.
func lost(seconds int) func(*Node) {
	return func(n *Node) {
		n.Last, n.Direct, n.Through = at-time.Duration(seconds)*time.Second, No, map[string]Answer{"n01": No}
	}
}

func decided(t *testing.T, nodes []Node, leader time.Duration) Decision {
	t.Helper()
	return Decide(Input{Now: at, Rules: rules, Leader: leader, Nodes: nodes})
}

func TestANodeIsJudged(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Node)
		status Status
		action string // the state that the node gets
		says   string
	}{
		{"a node whose beats arrive is alive", func(*Node) {}, Alive, "", ""},
		{"two missed beats are nothing", func(n *Node) { n.Last = at - 29*time.Second }, Alive, "", ""},
		{"three make it suspect", func(n *Node) { n.Last = at - 30*time.Second }, Suspect, "",
			"30s of a grace of 1m"},
		{"within its grace it is suspect, even if nobody reaches it", lost(59), Suspect, "", "59s of a grace"},
		{"after its grace it is dead, if nobody reaches it", lost(60), Dead, state.Out,
			"neither from here nor from n01"},
		{"not if it was not dialed", func(n *Node) { lost(90)(n); n.Direct = Unknown }, Suspect, "",
			"nobody has dialed"},
		{"not if it answers", func(n *Node) { lost(90)(n); n.Direct = Yes }, Quiet, "", "it answers a dial"},
		{"not if another node reaches it", func(n *Node) { lost(90)(n); n.Through["n02"] = Yes }, Quiet, "",
			"n02 reaches it: this controller is cut off"},
		{"not if no other node could be asked",
			func(n *Node) { lost(90)(n); n.Through = map[string]Answer{"n01": Unknown} },
			Suspect, "", "no other node could be asked"},
		{"a node that came back once is given twice the grace", func(n *Node) { lost(119)(n); n.Flaps = 1 }, Suspect,
			"",
			"come back 1 times lately, so its grace is 2m"},
		{"and no more", func(n *Node) { lost(120)(n); n.Flaps = 1 }, Dead, state.Out, ""},
		{"at most eight times", func(n *Node) { lost(480)(n); n.Flaps = 4 }, Dead, state.Out, ""},
		{"and no less however often", func(n *Node) { lost(479)(n); n.Flaps = 99 }, Suspect, "", "its grace is 8m"},
		{"a node that never sent a beat is not watched", func(n *Node) { lost(900)(n); n.Beats = false }, Unwatched, "",
			"never sent"},
		{"the controller itself cannot be lost", func(n *Node) { lost(900)(n); n.Local = true }, Here, "", ""},
		{"a node that is out stays so", func(n *Node) { lost(900)(n); n.State = state.Out }, Gone, "", "it is out"},
		{"also when its beats arrive again", func(n *Node) { n.State = state.Out }, Returned, "",
			"croft grid node up n04"},
		{"a drained node has nothing to move", func(n *Node) { lost(900)(n); n.State = state.Drain }, Gone, "", ""},
		{"maintenance is an operator's matter", func(n *Node) { lost(900)(n); n.State = state.Maintenance }, Unwatched,
			"", ""},
		{"but not when the watch began it", func(n *Node) { lost(900)(n); n.State, n.Marked = state.Maintenance, true },
			Dead,
			state.Out, ""},

		{"an exclusive job stays without fence and lease",
			func(n *Node) { lost(9000)(n); n.Exclusive = 1; n.Others = 0 }, Dead, "",
			"no fence says that it is off"},
		{"and the other jobs of the node do not", func(n *Node) { lost(9000)(n); n.Exclusive = 1 }, Dead,
			state.Maintenance,
			"no fence says"},
		{"it stays if the fence says no", func(n *Node) { lost(9000)(n); n.Exclusive, n.Others, n.Fenced = 1, 0, No },
			Dead, "",
			"its fence does not say"},
		{"it goes if the fence says yes", func(n *Node) { lost(60)(n); n.Exclusive, n.Fenced = 1, Yes }, Dead,
			state.Out,
			"its fence says that it is off"},
		{"it goes when the lease must have run out", func(n *Node) {
			lost(60)(n)
			n.Exclusive, n.Lease, n.Granted = 1, 30*time.Second, at-time.Minute
		}, Dead, state.Out, "its lease of 30s has run out"},
		{"not before a grace since it was granted", func(n *Node) {
			lost(60)(n)
			n.Exclusive, n.Others, n.Lease, n.Granted = 1, 0, 30*time.Second, at-59*time.Second
		}, Dead, "", "its lease runs out within 1s"},
		{"a lease that is longer than half of the grace is none", func(n *Node) {
			lost(600)(n)
			n.Exclusive, n.Others, n.Lease = 1, 0, 31*time.Second
		}, Dead, "", "longer than half"},
	} {
		t.Run(c.name, func(t *testing.T) {
			nodes := fleet(9)
			c.change(&nodes[4])
			d := decided(t, nodes, 0)
			v := d.Verdicts[4]
			if all := v.Reason + fmt.Sprint(d.Held, d.Actions); v.Status != c.status || !strings.Contains(all, c.says) {
				t.Errorf("it is %s: %s, want %s: %s", v.Status, all, c.status, c.says)
			}
			got := ""
			if len(d.Actions) > 0 {
				got = d.Actions[0].State
			}
			if got != c.action || len(d.Actions) > 1 {
				t.Errorf("the actions are %+v, want %q", d.Actions, c.action)
			}
		})
	}
}

func TestALeaseMayBeOneOfTheLeaderBefore(t *testing.T) {
	nodes := fleet(9)
	lost(600)(&nodes[4])
	nodes[4].Exclusive, nodes[4].Others, nodes[4].Lease = 1, 0, 30*time.Second
	if d := decided(t, nodes, at-59*time.Second); len(d.Actions) > 0 || len(d.Held) != 1 {
		t.Errorf("59 seconds after the change of leaders: %+v", d)
	}
	if d := decided(t, nodes, at-time.Minute); len(d.Actions) != 1 {
		t.Errorf("a minute after: %+v", d)
	}
}

func TestNothingIsDoneWhenTheControllerMayBeCutOff(t *testing.T) {
	for _, c := range []struct {
		name   string
		nodes  int
		change func([]Node)
		acts   bool
	}{
		{"one of three nodes in different sites", 3, func(n []Node) {
			for i := range n {
				n[i].Site = fmt.Sprint(i / 2)
			}
			lost(60)(&n[0])
		}, true},
		{"one of two nodes", 2, func(n []Node) { lost(60)(&n[0]) }, false},
		{"one of three nodes, each in a site of its own", 3, func(n []Node) {
			for i := range n {
				n[i].Site = fmt.Sprint(i)
			}
			lost(60)(&n[0])
		}, true},
		{"two of three nodes, each in a site of its own", 3, func(n []Node) {
			for i := range n {
				n[i].Site = fmt.Sprint(i)
			}
			lost(60)(&n[0])
			lost(60)(&n[1])
		}, false},
		{"the only watched node of a site that has another one", 3, func(n []Node) {
			for i := range n {
				n[i].Site = fmt.Sprint(i / 2)
			}
			n[1].State = state.Out
			lost(60)(&n[0])
		}, false},
		{"three of nine, in three sites", 9, func(n []Node) { lost(60)(&n[0]); lost(60)(&n[3]); lost(60)(&n[6]) },
			true},
		{"four of nine", 9, func(n []Node) { lost(60)(&n[0]); lost(60)(&n[3]); lost(60)(&n[6]); lost(60)(&n[7]) },
			false},
		{"a site of three in twelve", 12, func(n []Node) { lost(60)(&n[0]); lost(60)(&n[1]); lost(60)(&n[2]) }, false},
		{"two of that site", 12, func(n []Node) { lost(60)(&n[0]); lost(60)(&n[1]) }, true},
		{"two of that site, and the third was just put out", 12, func(n []Node) {
			lost(60)(&n[0])
			lost(60)(&n[1])
			lost(600)(&n[2])
			n[2].State, n[2].Marked, n[2].OutAt = state.Out, true, at-9*time.Minute
		}, false},
		{"two of that site, and the third was put out long ago", 12, func(n []Node) {
			lost(60)(&n[0])
			lost(600)(&n[2])
			n[2].State, n[2].Marked, n[2].OutAt = state.Out, true, at-11*time.Minute
		}, true},
		{"two of that site, and an operator put the third out", 12, func(n []Node) {
			lost(60)(&n[0])
			lost(600)(&n[2])
			n[2].State = state.Out
		}, true},
		{"one dead, three more suspect", 9,
			func(n []Node) { lost(60)(&n[0]); lost(30)(&n[3]); lost(30)(&n[6]); lost(30)(&n[7]) }, false},
		{"one dead, three more quiet", 9, func(n []Node) {
			lost(60)(&n[0])
			for _, i := range []int{3, 6, 7} {
				lost(60)(&n[i])
				n[i].Direct = Yes
			}
		}, true},
		{"nodes that never sent a beat do not help", 9, func(n []Node) {
			lost(60)(&n[0])
			for i := 2; i < 9; i++ {
				n[i].Beats = false
			}
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			nodes := fleet(c.nodes)
			c.change(nodes)
			d := decided(t, nodes, 0)
			if (len(d.Actions) > 0) != c.acts || (len(d.Held) == 0) != c.acts {
				t.Errorf("actions %+v, held %q, want any: %v", d.Actions, d.Held, c.acts)
			}
		})
	}
}

func TestWhoIsDialedFromWhere(t *testing.T) {
	nodes := fleet(12)
	nodes[1].Last = at - time.Minute       // its grace is over
	nodes[5].Last = at - 30*time.Second    // counts as lost until it answers
	nodes[2].Last, nodes[2].Direct = 0, No // was asked already
	d := decided(t, nodes, 0)
	want := []Dial{{"n01", []string{"n00", "n03", "n04"}}, {"n05", []string{"n03", "n04", "n00"}}}
	if fmt.Sprint(d.Dial) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v: neighbors first", d.Dial, want)
	}
	nodes[1].Last = at - 59*time.Second
	nodes[2].Last = at
	if d := decided(t, nodes, 0); len(d.Dial) > 0 {
		t.Errorf("nobody's grace is over, and %v are dialed", d.Dial)
	}
}

// TestNoInputMakesADecisionUnsafe checks invariants of decisions on random inputs.
func TestNoInputMakesADecisionUnsafe(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	answers := []Answer{Unknown, Yes, No, No, No}
	acted := 0
	for range 20_000 {
		nodes := fleet(1 + r.IntN(12))
		for i := range nodes {
			n := &nodes[i]
			n.Site = []string{"", "a", "b", "c"}[r.IntN(4)]
			n.State = []string{state.Up, state.Up, state.Up, state.Up, state.Out, state.Drain,
				state.Maintenance}[r.IntN(7)]
			n.Marked, n.Beats, n.Local = r.IntN(2) == 0, r.IntN(8) > 0, r.IntN(12) == 0
			if r.IntN(3) == 0 {
				n.Last = at - time.Duration(r.IntN(300))*time.Second
			}
			n.Exclusive, n.Others = r.IntN(2), r.IntN(2)
			n.Lease, n.Granted = time.Duration(r.IntN(4))*10*time.Second, at-time.Duration(r.IntN(300))*time.Second
			n.Flaps, n.OutAt = r.IntN(3), at-time.Duration(r.IntN(1000))*time.Second
			n.Direct, n.Fenced = answers[r.IntN(5)], answers[r.IntN(3)]
			n.Through = map[string]Answer{"x": answers[r.IntN(5)], "y": answers[r.IntN(5)]}
		}
		in := Input{Now: at, Rules: rules, Leader: at - time.Duration(r.IntN(300))*time.Second, Nodes: nodes}
		d := Decide(in)
		checkDecision(t, in, d)
		acted += len(d.Actions)
		slices.Reverse(in.Nodes)
		if again := Decide(in); fmt.Sprint(again.Actions, again.Verdicts) != fmt.Sprint(d.Actions, d.Verdicts) {
			t.Fatalf("the order of nodes decides: %v, %v", d, again)
		}
		if t.Failed() {
			return
		}
	}
	if acted < 1000 {
		t.Errorf("only %d actions: the inputs try too little", acted)
	}
}

// checkDecision checks the invariants of a decision, independently of the code of Decide.
func checkDecision(t *testing.T, in Input, d Decision) {
	t.Helper()
	silent, watched := 0, 0
	sites := map[string]bool{} // sites with a live node
	nodes := map[string]int{}
	for _, n := range in.Nodes {
		nodes[n.Site]++
		if n.Local || !n.Beats || n.State != state.Up && !(n.State == state.Maintenance && n.Marked) {
			continue
		}
		watched++
		reached := n.Direct == Yes || n.Through["x"] == Yes || n.Through["y"] == Yes
		if gone := in.Now-n.Last >= 3*in.Rules.Every && !reached; gone {
			silent++
		} else {
			sites[n.Site] = true
		}
	}
	for _, a := range d.Actions {
		n := in.Nodes[slices.IndexFunc(in.Nodes, func(n Node) bool { return n.Name == a.Node })]
		recent := 0
		for _, other := range in.Nodes {
			if other.State == state.Out && other.Marked && in.Now-other.Last >= 3*in.Rules.Every &&
				in.Now-max(other.OutAt, in.Leader) < 10*in.Rules.Grace {
				recent++
			}
		}
		switch {
		case 3*silent > watched+recent:
			t.Errorf("%d of %d are lost, and %s becomes %s: %+v", silent, watched, a.Node, a.State, in.Nodes)
		case n.Site != "" && !sites[n.Site] && nodes[n.Site] > 1:
			t.Errorf("all of %s is lost, and %s becomes %s", n.Site, a.Node, a.State)
		case n.Local, !n.Beats, n.Direct != No, in.Now-n.Last < in.Rules.Grace, n.Through["x"] != No &&
			n.Through["y"] != No:
			t.Errorf("%+v may live, and becomes %s", n, a.State)
		case a.State == state.Out && n.Exclusive > 0 && n.Fenced != Yes && (n.Lease == 0 ||
			n.Lease > in.Rules.Grace/2 ||
			in.Now-n.Granted < in.Rules.Grace || in.Now-in.Leader < in.Rules.Grace):
			t.Errorf("%+v may still run an exclusive job (leader since %s), and becomes out", n, in.Now-in.Leader)
		case a.State != state.Out && a.State != state.Maintenance:
			t.Errorf("%s becomes %s", a.Node, a.State)
		}
	}
}
