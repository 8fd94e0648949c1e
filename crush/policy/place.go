package policy

import (
	"fmt"
	"slices"

	"croft/crush"
)

// Compiled is a policy for the buckets of one map. It is immutable.
type Compiled struct{ takes []Taking }

// Taking is the effect of one take: below From, each selection chooses N buckets, and N devices are chosen in each
// bucket of the last selection.
type Taking struct {
	From    crush.ID
	Selects []Selection
	N       int
	Steps   []crush.Step // the equivalent CRUSH rule
	Line    int          // line of the take
}

// Selection is the effect of a select before a take.
type Selection struct {
	N    int
	Type crush.Type
}

// Takes returns the takes in order.
func (c *Compiled) Takes() []Taking { return c.takes }

// Compile resolves the names of a policy. The root is the only bucket without a parent, or the one of these that is
// named default.
func Compile(p Policy, m *crush.Map) (*Compiled, error) {
	names := newNames(m)
	root, err := rootOf(m)
	if err != nil {
		return nil, err
	}
	c := &Compiled{}
	at, selected := root, []crush.Step(nil)
	for n, i := range p {
		switch i.Op {
		case Use:
			if at, err = names.bucket(i); err != nil {
				return nil, err
			}
			selected = nil
		case Select:
			kind, err := names.kind(i)
			if err != nil {
				return nil, err
			}
			op := crush.ChooseFirstn
			if n+1 < len(p) && p[n+1].Op == Take && p[n+1].N == 1 {
				op = crush.ChooseLeafFirstn
			}
			selected = append(selected, crush.Step{Op: op, N: i.N, Type: kind})
		case Take:
			steps := append([]crush.Step{{Op: crush.Take, Item: at}}, selected...)
			if last := steps[len(steps)-1]; last.Op != crush.ChooseLeafFirstn {
				steps = append(steps, crush.Step{Op: crush.ChooseFirstn, N: i.N})
			}
			taking := Taking{From: at, N: i.N, Steps: append(steps, crush.Step{Op: crush.Emit}), Line: i.Line}
			for _, step := range selected {
				taking.Selects = append(taking.Selects, Selection{step.N, step.Type})
			}
			c.takes = append(c.takes, taking)
			// A select that was compiled with its take also applies to a later take.
			for j := range selected {
				selected[j].Op = crush.ChooseFirstn
			}
			selected = slices.Clone(selected)
		case Emit:
			at, selected = root, nil
		}
	}
	return c, nil
}

func rootOf(m *crush.Map) (crush.ID, error) {
	roots := m.Roots()
	named := slices.IndexFunc(roots, func(b *crush.Bucket) bool { return b.Name == "default" })
	switch {
	case len(roots) == 0:
		return 0, fmt.Errorf("the map has no buckets")
	case len(roots) == 1:
		return roots[0].ID, nil
	case named < 0:
		return 0, fmt.Errorf("the map has %d roots, of which none is named default", len(roots))
	}
	return roots[named].ID, nil
}

// Steps returns the policy as the steps of one CRUSH rule.
func (c *Compiled) Steps() (all []crush.Step) {
	for _, t := range c.takes {
		all = append(all, t.Steps...)
	}
	return all
}

// Request is the input of Place.
type Request struct {
	X         uint32 // input of the hash
	Want      int    // number of replicas
	Reweights crush.Reweights
	// Refuse returns true for unusable devices; nil: all are usable.
	Refuse func(crush.ID) bool
	// Kept are devices that count as placed already, and are not returned again.
	Kept []crush.ID
	// Ceph selects the behaviour of CRUSH: one pass, in which a later take may return a device that an earlier one
	// returned.
	Ceph bool
}

// Place appends the devices for a request to out, in the order of the policy: Want less the number of Kept, or fewer if
// there are not enough devices. Unless Ceph is set, no device occurs twice, and while a pass of the policy returns too
// few, further passes with other inputs follow, until one adds nothing.
func (c *Compiled) Place(m *crush.Mapper, r Request, out []crush.ID) []crush.ID {
	begun := len(out)
	given := func(id crush.ID) bool {
		return slices.Contains(out[begun:], id) || slices.Contains(r.Kept, id) || r.Refuse != nil && r.Refuse(id)
	}
	if r.Ceph {
		given = r.Refuse
	}
	m.Refuse(given)
	defer m.Refuse(nil)
	want := r.Want - len(r.Kept)
	for pass := range maxPasses {
		x, before := r.X, len(out)
		if pass > 0 {
			x = crush.Hash2(r.X, uint32(pass))
		}
		for _, t := range c.takes {
			for _, id := range m.Run(t.Steps, x, r.Want, r.Reweights, nil) {
				if len(out)-begun < want {
					out = append(out, id)
				}
			}
		}
		if r.Ceph || len(out)-begun >= want || len(out) == before {
			break
		}
	}
	return out
}
