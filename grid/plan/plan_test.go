package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"croft"
	"croft/grid/unit"
)

const cluster = "0123456789abcdef0123456789abcdef"

// web returns a unit with a version.
func web(slot int, version string) unit.Unit {
	return unit.Unit{Cluster: cluster, Job: "web", Slot: slot, Runtime: "process", Command: []string{version}}
}

func once(u unit.Unit) unit.Unit {
	u.Job, u.Exclusive = "db", true
	return u
}

func node(id int, units ...unit.Unit) unit.Node {
	return unit.Node{Name: fmt.Sprintf("n%d", id), ID: id, State: "up", Units: units}
}

// has returns the observation of a node on which units were applied and are running.
func has(id int, units ...unit.Unit) Observed {
	n := node(id, units...)
	o := Observed{Node: n.Name, Epoch: 1, Phase: "done", Revision: "git:1", Applied: &n}
	for _, u := range units {
		o.Units = append(o.Units, Actual{Name: u.Name(), Job: u.Job, Slot: u.Slot, Hash: u.Hash(), Runtime: u.Runtime,
			Running: true})
	}
	return o
}

// gone returns a node whose file was removed.
func gone(id int) unit.Node {
	n := node(id)
	n.State = left
	return n
}

func booted(o Observed) Observed {
	o.Boot = "a boot"
	return o
}

func with(o Observed, change func(*Observed)) Observed {
	change(&o)
	return o
}

func TestCompute(t *testing.T) {
	for _, c := range []struct {
		name    string
		want    []unit.Node
		found   []Observed
		options Options
		steps   []string // OP NAME NODE
		reads   []string
		kind    croft.Kind
	}{
		{name: "nothing has to change", want: []unit.Node{node(1, web(0, "a"))}, found: []Observed{has(1, web(0,
			"a"))}},
		{name: "a unit is started where it is not", want: []unit.Node{node(1, web(0, "a"))}, found: []Observed{has(1)},
			steps: []string{"create web-0 n1"}},
		{name: "a unit of another hash is replaced", want: []unit.Node{node(1, web(0, "b"))},
			found: []Observed{has(1, web(0, "a"))}, steps: []string{"replace web-0 n1"}},
		{name: "a unit whose image is another one now is replaced", want: []unit.Node{node(1, web(0, "a"))},
			found: []Observed{with(has(1, web(0, "a")), func(o *Observed) { o.Units[0].OldImage = true })},
			steps: []string{"replace web-0 n1"}},
		{name: "a unit that another definition of its runtime made is replaced, even if it does not run",
			want: []unit.Node{node(1, web(0, "a"), web(1, "a"))},
			found: []Observed{with(has(1, web(0, "a"), web(1, "a")), func(o *Observed) {
				o.Units[0].OldDefinition, o.Units[1].OldDefinition, o.Units[1].Running = true, true, false
			})}, steps: []string{"replace web-0 n1", "replace web-1 n1"}},
		{name: "a unit that ended is started", want: []unit.Node{node(1, web(0, "a"))},
			found: []Observed{with(has(1, web(0, "a")), func(o *Observed) { o.Units[0].Running = false })},
			steps: []string{"start web-0 n1"}},
		{name: "a unit that nothing asks for is stopped", want: []unit.Node{node(1)}, found: []Observed{has(1, web(0,
			"a"))},
			steps: []string{"stop web-0 n1"}},
		{name: "a unit that moves is started before it is stopped, and both nodes are changed",
			want: []unit.Node{node(1), node(2, web(0, "a"))}, found: []Observed{has(1, web(0, "a")), has(2)},
			steps: []string{"stop web-0 n1", "create web-0 n2"}},
		{name: "nodes of the same job are counted on", want: []unit.Node{node(1, web(0, "b")), node(2, web(1, "a"))},
			found: []Observed{has(1, web(0, "a")), has(2, web(1, "a"))}, steps: []string{"replace web-0 n1"},
			reads: []string{"n2"}},
		{name: "nodes of other jobs are not", want: []unit.Node{node(1, web(0, "b")), node(2, once(web(0, "a")))},
			found: []Observed{has(1, web(0, "a")), has(2, once(web(0, "a")))}, steps: []string{"replace web-0 n1"}},
		{name: "all nodes are counted on where a unit may run once", want: []unit.Node{node(1, once(web(0, "a"))),
			node(2)},
			found: []Observed{has(1), has(2)}, steps: []string{"create db-0 n1"}, reads: []string{"n2"}},
		{name: "a unit that may run once is not started while a node is not seen",
			want:  []unit.Node{node(1, once(web(0, "a"))), node(2)},
			found: []Observed{has(1), {Node: "n2", Error: "no route"}}, kind: croft.Unavailable},
		{name: "but it is where that node is off for certain", want: []unit.Node{node(1, once(web(0, "a"))), node(2)},
			found: []Observed{has(1), {Node: "n2", Error: "no route"}}, options: Options{Fenced: []string{"n2"}},
			steps: []string{"create db-0 n1"}},
		{name: "a limit that leaves it running elsewhere is refused",
			want:  []unit.Node{node(1), node(2, once(web(0, "a")))},
			found: []Observed{has(1, once(web(0, "a"))), has(2)}, options: Options{Limit: []string{"n2"}},
			kind: croft.Conflict},
		{name: "a limit leaves other nodes alone", want: []unit.Node{node(1, web(0, "b")), node(2, web(1, "b"))},
			found:   []Observed{has(1, web(0, "a")), has(2, web(1, "a"))},
			options: Options{Limit: []string{"n2"}}, steps: []string{"replace web-1 n2"}, reads: []string{"n1"}},
		{name: "a limit that names no node", want: []unit.Node{node(1)}, found: []Observed{has(1)},
			options: Options{Limit: []string{"n9"}}, kind: croft.Invalid},
		{name: "a node in maintenance is left alone",
			want:  []unit.Node{func() unit.Node { n := node(1, web(0, "b")); n.State = "maintenance"; return n }()},
			found: []Observed{has(1, web(0, "a"))}},
		{name: "what an interrupted change may have started is waited for", want: []unit.Node{node(1, web(0, "a"))},
			found: []Observed{with(has(1, web(0, "a")), func(o *Observed) { o.Phase = "applying" })},
			steps: []string{"await web-0 n1"}},
		{name: "an interrupted change of which nothing is left", want: []unit.Node{node(1)},
			found: []Observed{with(has(1), func(o *Observed) { o.Phase = "applying" })}, steps: []string{"finish n1"}},
		{name: "the nodes of an interrupted change are counted on", want: []unit.Node{node(1, web(0, "a")), node(2),
			node(3)},
			found: []Observed{with(has(1), func(o *Observed) { o.Phase, o.With = "applying", []string{"n1", "n3"} }),
				has(2),
				has(3)}, steps: []string{"create web-0 n1"}, reads: []string{"n3"}},
		{name: "a unit that may run once ends first on a node whose file was removed",
			want:  []unit.Node{gone(1), node(2, once(web(0, "a")))},
			found: []Observed{has(1, once(web(0, "a"))), has(2)},
			steps: []string{"stop db-0 n1", "create db-0 n2"}},
		{name: "a unit that may run once starts nowhere while a node without a file is not seen",
			want:  []unit.Node{gone(1), node(2, once(web(0, "a")))},
			found: []Observed{{Node: "n1", Error: "no route"}, has(2)}, kind: croft.Unavailable},
		{name: "but it does where that node is off for certain",
			want:  []unit.Node{gone(1), node(2, once(web(0, "a")))},
			found: []Observed{{Node: "n1", Error: "no route"}, has(2)}, options: Options{Fenced: []string{"n1"}},
			steps: []string{"create db-0 n2"}},
		{name: "other units start while a node without a file is not seen",
			want:  []unit.Node{gone(1), node(2, web(0, "a"))},
			found: []Observed{{Node: "n1", Error: "no route"}, has(2)}, steps: []string{"create web-0 n2"}},
		{name: "a node without a file that is another node's machine is left alone",
			want:  []unit.Node{gone(1), node(2, web(0, "a"))},
			found: []Observed{booted(has(1, web(0, "a"))), booted(has(2, web(0, "a")))}},
		{name: "a firewall that changes",
			want:  []unit.Node{func() unit.Node { n := node(1); n.Firewall = "table inet x {}"; return n }()},
			found: []Observed{has(1)}, steps: []string{"firewall n1"}},
		{name: "a node that does not answer, and is counted on", want: []unit.Node{node(1, web(0, "b")), node(2,
			web(1, "a"))},
			found: []Observed{has(1, web(0, "a")), {Node: "n2", Error: "no route"}}, kind: croft.Unavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := Compute(Desired{Cluster: cluster, Revision: "git:2", Nodes: c.want}, c.found, c.options)
			if c.kind != "" {
				if !errors.Is(err, c.kind) {
					t.Errorf("got %v, want %s", err, c.kind)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var steps []string
			for _, s := range p.Steps {
				steps = append(steps, strings.Join(strings.Fields(string(s.Op)+" "+strings.TrimPrefix(s.Name,
					"f-01234567-")+" "+
					s.Node), " "))
			}
			if !slices.Equal(steps, c.steps) || !slices.Equal(p.Reads, c.reads) {
				t.Errorf("steps %q, reads %q; want %q and %q", steps, p.Reads, c.steps, c.reads)
			}
			for i, o := range c.found { // the same state, observed later
				c.found[i].Units = slices.Clone(o.Units)
				for k := range o.Units {
					c.found[i].Units[k].Status = "since a while"
				}
			}
			if again, err := Compute(Desired{Cluster: cluster, Revision: "git:2", Nodes: c.want}, c.found,
				c.options); err != nil || again.ID() != p.ID() {
				t.Error("the same plan has another id")
			}
		})
	}
}

// TestAnAddressThatMayBeElsewhereIsWarnedOf: the unobserved node may be cut off and still be running.
func TestAnAddressThatMayBeElsewhereIsWarnedOf(t *testing.T) {
	u := web(0, "a")
	u.Address, u.Pooled = "10.0.0.7", true
	lost := Observed{Node: "n1", Error: "no route"}
	out := node(1)
	out.State = "out"
	for name, c := range map[string]struct {
		found   []Observed
		options Options
		warned  bool
	}{
		"the node that it leaves does not answer": {[]Observed{lost, has(2)}, Options{}, true},
		"that node is off for certain":            {[]Observed{lost, has(2)}, Options{Fenced: []string{"n1"}}, false},
		"that node answers":                       {[]Observed{has(1, u), has(2)}, Options{}, false},
		"it runs already":                         {[]Observed{lost, has(2, u)}, Options{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Compute(
				Desired{Cluster: cluster, Revision: "git:2", Nodes: []unit.Node{out, node(2, u)}},
				c.found,
				c.options,
			)
			if err != nil {
				t.Fatal(err)
			}
			warned := strings.Contains(strings.Join(p.Warnings, "\n"), "n1 may still have the address 10.0.0.7")
			if warned != c.warned {
				t.Errorf("warnings %q", p.Warnings)
			}
		})
	}
}

func TestDifferencesOfFiles(t *testing.T) {
	was, now := web(0, "a"), web(0, "a")
	was.Files = []unit.File{{Path: "/gone", Digest: "1", Content: "x\n"},
		{Path: "/etc/c", Mode: 0o644, Digest: "2", Content: "one\ntwo\nthree\n"},
		{Path: "/key", Digest: "3", Content: "hunter2", Secret: true}}
	now.Files = []unit.File{{Path: "/etc/c", Mode: 0o600, Digest: "4", Content: "one\n2\nthree\nfour\n"},
		{Path: "/key", Digest: "5", Content: "hunter3", Secret: true}, {Path: "/new", Digest: "6", Content: "y\n"}}
	now.Env = map[string]string{"A": "1"}
	want := []string{
		`+ env: {"A":"1"}`,
		"~ file /etc/c: mode 0600, was 0644",
		"~ file /etc/c",
		"- two",
		"+ 2",
		"+ four",
		"- file /gone",
		"~ file /key (secret)",
		"+ file /new",
		"+ y",
	}
	if got := diffUnit(&was, &now); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if text := string(Document(node(1, now))); strings.Contains(text, "hunter") || !strings.Contains(text, "four") {
		t.Errorf("what is stored of it: %s", text)
	}
}

// FuzzDifferences checks that the second text can be restored from the first text and the displayed lines.
func FuzzDifferences(f *testing.F) {
	f.Add("a\nb\nc\n", "a\nc\nd\n")
	f.Add("", "x")
	f.Add("a\na\na\n", "a\nb\na\n")
	f.Fuzz(func(t *testing.T, a, b string) {
		if len(a)+len(b) > 2000 {
			return
		}
		counts := map[string]int{}
		for _, l := range splitLines(a) {
			counts[l]++
		}
		for _, l := range subsequence(splitLines(a), splitLines(b)) {
			if strings.HasPrefix(l, "- ") {
				counts[l[2:]]--
			} else {
				counts[l[2:]]++
			}
		}
		for _, l := range splitLines(b) {
			counts[l]--
		}
		for l, n := range counts {
			if n != 0 {
				t.Errorf("line %q: %d too many", l, n)
			}
		}
	})
}

func TestAudit(t *testing.T) {
	want := Desired{Cluster: cluster, Revision: "git:2", Nodes: []unit.Node{node(1, web(0, "a"), web(1, "a")),
		node(2, web(2, "b")), node(3)}}
	stranger := with(has(3), func(o *Observed) {
		o.Units = []Actual{{Name: "f-01234567-x-0", Job: "x", Hash: "1", Running: true, Runtime: "process"}}
	})
	list, err := Audit(want, []Observed{
		with(has(1, web(0, "a"), web(1, "a")), func(o *Observed) { o.Units = o.Units[1:] }), has(2, web(2, "a")),
		stranger,
		{Node: "n4", Error: "no route"},
	}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range list {
		got = append(got, fmt.Sprintf("%s %s %s", d.Node, d.Cause, d.Op))
	}
	if w := []string{"n1 drift create", "n2 pending replace", "n3 drift stop", "n4 unseen "}; !slices.Equal(got, w) {
		t.Errorf("got %q, want %q", got, w)
	}
}

// TestAMovedImageIsDriftAndAChangedDefinitionIsPending: the image changed on the node, the definition in the files.
func TestAMovedImageIsDriftAndAChangedDefinitionIsPending(t *testing.T) {
	u := web(0, "a")
	u.Image.Registry = "example.org/web:1"
	want := Desired{Cluster: cluster, Revision: "git:2", Nodes: []unit.Node{node(1, u)}}
	for _, c := range []struct {
		change func(a *Actual)
		cause  Cause
		says   string
	}{
		{func(a *Actual) { a.OldImage = true }, Drift, "its image example.org/web:1 names another image on the node now"},
		{func(a *Actual) { a.OldDefinition = true }, Pending, "the definition of its runtime process changed"},
	} {
		found := with(has(1, u), func(o *Observed) { c.change(&o.Units[0]) })
		list, err := Audit(want, []Observed{found}, Options{})
		if err != nil || len(list) != 1 || list[0].Cause != c.cause || list[0].Text != c.says {
			t.Errorf("%+v, %v; want %s: %s", list, err, c.cause, c.says)
		}
		if found.Digest() == has(1, u).Digest() {
			t.Errorf("%s: the observation has the digest of one without it", c.says)
		}
	}
}

func BenchmarkCompute(b *testing.B) {
	const nodes, units = 1000, 10
	want := Desired{Cluster: cluster, Revision: "git:2"}
	var found []Observed
	for i := range nodes {
		var was, now []unit.Unit
		for k := range units {
			u := web(i*units+k, "a")
			u.Job = fmt.Sprintf("job%d", k)
			u.Files = []unit.File{{Path: "/etc/conf", Digest: "1", Content: strings.Repeat("a line of it\n", 40)}}
			was = append(was, u)
			u.Files = []unit.File{{Path: "/etc/conf", Digest: "2", Content: strings.Repeat("a line of it\n",
				40) + "more\n"}}
			now = append(now, u)
		}
		want.Nodes = append(want.Nodes, node(i, now...))
		found = append(found, has(i, was...))
	}
	for b.Loop() {
		if p, err := Compute(want, found, Options{}); err != nil || len(p.Steps) != nodes*units {
			b.Fatal(err)
		}
	}
}
