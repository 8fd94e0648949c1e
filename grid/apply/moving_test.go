package apply_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"croft/grid/apply"
	"croft/grid/machine"
	"croft/grid/plan"
	"croft/grid/unit"
)

// diary is a runtime that records when units are started and stopped on a node.
type diary struct {
	apply.Runtime
	node string
	note func(string)
}

func (d diary) Start(ctx context.Context, m machine.Machine, u unit.Unit) error {
	d.note("start on " + d.node)
	return d.Runtime.Start(ctx, m, u)
}

func (d diary) Stop(ctx context.Context, m machine.Machine, u unit.Unit) error {
	err := d.Runtime.Stop(ctx, m, u)
	d.note("stopped on " + d.node)
	return err
}

// pooled gives the units of all nodes a pooled address.
func pooled(d plan.Desired) plan.Desired {
	for _, n := range d.Nodes {
		for i := range n.Units {
			n.Units[i].Address, n.Units[i].Pooled, n.Units[i].Network = "10.77.0.7", true, "none"
		}
	}
	return d
}

// TestAnAddressLeavesANodeBeforeAnotherGetsIt checks that two nodes never have one address at the same time.
func TestAnAddressLeavesANodeBeforeAnotherGetsIt(t *testing.T) {
	t.Parallel()
	b := newBed(t, 2)
	var mu sync.Mutex
	var notes []string
	g := b.grid("ann", func(c *apply.Config) {
		had := c.Runtimes
		c.Runtimes = func(name string, n unit.Node) (apply.Runtime, error) {
			r, err := had(name, n)
			return diary{r, n.Name, func(what string) {
				mu.Lock()
				defer mu.Unlock()
				notes = append(notes, what)
			}}, err
		}
	})
	if _, err := b.apply(g, pooled(b.want("a1", map[string][]string{"n1": {"web/0:1"}}))); err != nil {
		t.Fatal(err)
	}
	if _, err := b.apply(g, pooled(b.want("a2", map[string][]string{"n2": {"web/0:1"}}))); err != nil {
		t.Fatal(err)
	}
	left, arrived := slices.Index(notes, "stopped on n1"), slices.Index(notes, "start on n2")
	if left < 0 || arrived < left {
		t.Errorf("the unit moved like this: %s", strings.Join(notes, ", "))
	}
}
