package apply_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"croft"
	"croft/grid/apply"
	"croft/grid/plan"
)

// spread assigns one unit to each node.
func (b *bed) spread(version string) map[string][]string {
	units := map[string][]string{}
	for i, n := range b.nodes {
		units[n.Name] = []string{fmt.Sprintf("web/%d:%s", i, version)}
	}
	return units
}

func TestApplyOverSSH(t *testing.T) {
	t.Parallel()
	b := newBed(t, 3)
	one := b.want("a1", map[string][]string{"n1": {"web/0:1", "db/0:1"}, "n2": {"web/1:1"}})
	if r := b.must(one); len(r.Done) != 3 {
		t.Errorf("done: %v", r.Done)
	}
	g := b.grid("second")
	if p, _, err := g.Plan(t.Context(), one, plan.Options{}); err != nil || !p.Empty() {
		t.Errorf("a second plan: %v, %v", p.Steps, err)
	}
	two := b.want("a2", map[string][]string{"n2": {"web/1:2"}, "n3": {"web/0:2", "db/0:1"}})
	r := b.must(two)
	var words []string
	for _, s := range r.Done {
		words = append(words, string(s.Op)+" "+s.Name+" "+s.Node)
	}
	want := []string{"stop f-fedcba98-db-0 n1", "stop f-fedcba98-web-0 n1", "replace f-fedcba98-web-1 n2",
		"create f-fedcba98-web-0 n3", "create f-fedcba98-db-0 n3"}
	if !equal(words, want) {
		t.Errorf("done: %q", words)
	}
	runs := b.runs(two)
	if text := strings.Join(runs, "\n"); strings.Count(text, "running true") != 3 || strings.Count(text,
		" done ") != 3 {
		t.Errorf("in the end:\n%s", text)
	}
	old := b.want("a1", map[string][]string{"n1": {"web/0:1"}})
	var refused *apply.Refused
	if _, err := b.apply(g, old); !errors.As(err, &refused) || !strings.Contains(err.Error(), "does not contain") {
		t.Errorf("an older revision: %v", err)
	}
	if !equal(b.runs(two), runs) {
		t.Error("a refused apply changed something")
	}
}

// TestNothingToDoIsQuick measures empty plans, each over new connections.
func TestNothingToDoIsQuick(t *testing.T) {
	t.Parallel()
	b := newBed(t, 15)
	want := b.want("a1", b.spread("1"))
	b.must(want)
	began := time.Now()
	if r := b.must(want); len(r.Done)+len(r.Pending) != 0 {
		t.Errorf("something was done: %v", r)
	}
	t.Logf("nothing to do on 15 nodes: %v", time.Since(began))
}

// BenchmarkNothingToDo plans and applies an empty plan, each time over new connections.
func BenchmarkNothingToDo(t *testing.B) {
	for _, nodes := range []int{15, 100} {
		t.Run(fmt.Sprintf("nodes=%d", nodes), func(t *testing.B) {
			b := newBed(t, nodes)
			b.must(b.want("a1", b.spread("1")))
			for t.Loop() {
				if r := b.must(b.want("a1", b.spread("1"))); len(r.Done)+len(r.Pending) != 0 {
					t.Fatalf("something was done: %v", r)
				}
			}
		})
	}
}

func TestNodesThatShareAStateDirectoryAreNamedAtOnce(t *testing.T) {
	t.Parallel()
	b := newBed(t, 2)
	for i := range b.nodes {
		b.nodes[i].StateDir = b.ssh.Nodes[0].State
	}
	want := b.want("a1", b.spread("1"))
	_, err := b.apply(b.grid("first"), want)
	if croft.KindOf(err) != croft.Conflict || !strings.Contains(fmt.Sprint(err), "share one state directory") {
		t.Errorf("two nodes with one state directory: %v, want a Conflict that says so", err)
	}
}
