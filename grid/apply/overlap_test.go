package apply_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"croft/grid/apply"
	"croft/grid/machine"
	"croft/grid/plan"
	"croft/grid/unit"
)

// meeting is a runtime in which the start of a unit calls arrive, which can block until other units start too.
type meeting struct {
	apply.Runtime
	arrive func(ctx context.Context)
}

func (m meeting) Start(ctx context.Context, on machine.Machine, u unit.Unit) error {
	m.arrive(ctx)
	return m.Runtime.Start(ctx, on, u)
}

func meet(arrive func(ctx context.Context)) func(*apply.Config) {
	return func(c *apply.Config) {
		had := c.Runtimes
		c.Runtimes = func(name string, n unit.Node) (apply.Runtime, error) {
			r, err := had(name, n)
			if err != nil {
				return nil, err
			}
			return meeting{r, arrive}, nil
		}
	}
}

// TestDisjointAppliesOverlapInTime makes each of two applies wait in the middle for the other.
func TestDisjointAppliesOverlapInTime(t *testing.T) {
	t.Parallel()
	b := newBed(t, 2)
	both := make(chan struct{}, 2)
	arrived := make(chan struct{})
	arrive := func(ctx context.Context) {
		if both <- struct{}{}; len(both) == 2 {
			close(arrived)
		}
		select {
		case <-arrived:
		case <-ctx.Done():
		}
	}
	results := make(chan error, 2)
	for _, one := range []struct{ who, revision, node, unit string }{
		{"ann", "a1", "n1", "web/0:1"}, {"bob", "b1", "n2", "api/0:1"},
	} {
		g := b.grid(one.who, meet(arrive))
		want := b.want(one.revision, map[string][]string{one.node: {one.unit}})
		go func() {
			_, err := b.applyTo(g, want, one.node)
			results <- err
		}()
	}
	for range 2 {
		if err := <-results; err != nil {
			t.Errorf("one of two disjoint applies: %v", err)
		}
	}
}

// applyTo plans and applies want, limited to one node.
func (b *bed) applyTo(g *apply.Grid, want plan.Desired, node string) (apply.Result, error) {
	o := plan.Options{Limit: []string{node}}
	p, found, err := g.Plan(b.t.Context(), want, o)
	if err != nil {
		return apply.Result{}, err
	}
	return g.Apply(b.t.Context(), want, p, found, apply.Choice{Options: o})
}

// TestOfOverlappingAppliesOneWins starts the second apply while the first is in the middle.
func TestOfOverlappingAppliesOneWins(t *testing.T) {
	t.Parallel()
	b := newBed(t, 2)
	began, end := make(chan struct{}), make(chan struct{})
	first := b.grid("ann@desk", meet(func(context.Context) {
		close(began)
		<-end
	}))
	want := b.want("a1", map[string][]string{"n1": {"web/0:1"}})
	result := make(chan error, 1)
	go func() {
		_, err := b.apply(first, want)
		result <- err
	}()
	<-began
	second := b.grid("bob@desk")
	_, err := b.apply(second, b.want("a2", map[string][]string{"n1": {"web/0:2"}}))
	var refused *apply.Refused
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "lock n1: it is locked by ann@desk") {
		t.Errorf("the second: %v", err)
	}
	close(end)
	if err := <-result; err != nil {
		t.Errorf("the first: %v", err)
	}
	if runs := strings.Join(b.runs(want), "\n"); strings.Count(runs, "running true") != 1 {
		t.Errorf("in the end\n%s", runs)
	}
}

// TestAStoredPlanIsRefusedAfterAChange changes a node between plan and apply.
func TestAStoredPlanIsRefusedAfterAChange(t *testing.T) {
	t.Parallel()
	b := newBed(t, 1)
	g := b.grid("ann")
	want := b.want("a1", map[string][]string{"n1": {"web/0:1"}})
	p, found, err := g.Plan(t.Context(), want, plan.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b.must(b.want("a1", map[string][]string{"n1": {"api/0:1"}}))
	var refused *apply.Refused
	if _, err := g.Apply(t.Context(), want, p, found, apply.Choice{}); !errors.As(err, &refused) ||
		!strings.Contains(err.Error(), "plan again") {
		t.Errorf("an old plan: %v", err)
	}
}

// TestANodeWithoutItsStateIsNotTaken removes a node's stored state, as the restart of a live system does.
func TestANodeWithoutItsStateIsNotTaken(t *testing.T) {
	t.Parallel()
	b := newBed(t, 1)
	b.must(b.want("a2", map[string][]string{"n1": {"web/0:1"}}))
	if err := os.Remove(filepath.Join(b.nodes[0].StateDir, bedCluster, "rev")); err != nil {
		t.Fatal(err)
	}
	g := b.grid("ann")
	want := b.want("a1", map[string][]string{"n1": {"web/0:2"}})
	var refused *apply.Refused
	if _, err := b.apply(g, want); !errors.As(err, &refused) || !strings.Contains(err.Error(), "--adopt") {
		t.Errorf("an old revision where the newer was forgotten: %v", err)
	}
	p, found, err := g.Plan(t.Context(), want, plan.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Apply(t.Context(), want, p, found, apply.Choice{Adopt: true}); err != nil {
		t.Errorf("with --adopt: %v", err)
	}
}

// TestAFullDiskStopsANodeBeforeAnythingChanges puts a node's state directory on a full file system.
func TestAFullDiskStopsANodeBeforeAnythingChanges(t *testing.T) {
	t.Parallel()
	b := newBed(t, 2)
	one := b.want("a1", map[string][]string{"n1": {"web/0:1"}, "n2": {"web/1:1"}})
	b.must(one)
	before := b.runs(one)
	dir := filepath.Join(b.nodes[1].StateDir, bedCluster)
	full, err := fillUp(t, dir)
	if err != nil {
		t.Skipf("no small file system can be mounted here: %v", err)
	}
	g := b.grid("ann")
	_, err = b.apply(g, b.want("a2", map[string][]string{"n1": {"web/0:2"}, "n2": {"web/1:2"}}))
	full()
	if err == nil || !strings.Contains(err.Error(), "disk full") || strings.Contains(err.Error(), "\n") {
		t.Errorf("with a full disk: %v", err)
	}
	after := b.runs(one)
	if after[3] != before[3] || after[2] != before[2] {
		t.Errorf("before\n%s\nafter\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
}
