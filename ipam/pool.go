package ipam

import (
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	"go4.org/netipx"

	"croft"
	"croft/internal/nearest"
	"croft/ipam/setexpr"
)

// The strategies: which free address an owner gets.
const (
	First = "first" // the lowest
	Hash  = "hash"  // the first at or after the one that the owner's name leads to: branches seldom choose the same
)

// DefaultHold is how long an address that was freed is given to nobody but its former owner.
const DefaultHold = 24 * time.Hour

// A Pool is a prefix that addresses are taken from.
type Pool struct {
	Name     string
	Prefix   netip.Prefix
	Exclude  []string   // addresses, ranges and prefixes that are never given
	Gateway  netip.Addr // the zero Addr: none
	Tags     []string   // of every address in the prefix
	Strategy string
	Hold     time.Duration
	Within   string // the pool that this one is inside of, which gives none of its addresses; empty: none

	file    string
	exclude *netipx.IPSet
}

// poolFile is how a pool is written.
type poolFile struct {
	Prefix   string   `yaml:"prefix"`
	Gateway  string   `yaml:"gateway,omitempty"`
	Exclude  []string `yaml:"exclude,omitempty"`
	Tags     []string `yaml:"tags,omitempty"`
	Strategy string   `yaml:"strategy,omitempty"`
	Hold     string   `yaml:"hold,omitempty"`
	Within   string   `yaml:"within,omitempty"`
}

const poolDir = "net/pools"

func poolPath(name string) string { return path.Join(poolDir, name+yamlEnding) }

func (d *Dir) readPool(name string) (*Pool, []string, error) {
	r, err := d.reader(poolPath(name))
	if err != nil {
		return nil, nil, err
	}
	p := &Pool{Name: name, file: r.file, Prefix: r.prefix("prefix"), Gateway: r.addr("gateway"), Tags: r.names("tags"),
		Strategy: r.oneOf("strategy", First, First, Hash), Hold: r.duration("hold", DefaultHold)}
	if n := r.at("within"); n != nil {
		p.Within = r.text(n, "within")
	}
	for _, n := range r.scalars("exclude") {
		if err := p.addExclude(n.Value); err != nil {
			r.wrong(n, "exclude: %w", err)
		}
	}
	if r.err == nil {
		err = p.check()
	} else {
		err = r.err
	}
	return p, r.unknown(), err
}

func (p *Pool) addExclude(text string) error {
	x, err := setexpr.Parse(text, "", 1)
	if err != nil {
		return err
	}
	s, ok := x.Literal()
	if !ok {
		return croft.Errorf(croft.Invalid, "%s: give addresses, ranges and prefixes", text)
	}
	var b netipx.IPSetBuilder
	if p.exclude != nil {
		b.AddSet(p.exclude)
	}
	b.AddSet(s)
	p.Exclude = append(p.Exclude, text)
	p.exclude, err = b.IPSet()
	return err
}

// check checks a pool by itself.
func (p *Pool) check() error {
	wrong := func(format string, args ...any) error {
		return croft.Errorf(croft.Invalid, "%s: "+format, append([]any{p.file}, args...)...)
	}
	if p.exclude == nil {
		p.exclude = &netipx.IPSet{}
	}
	if !p.Prefix.IsValid() {
		return wrong("a pool has a prefix: write prefix: 10.0.0.0/24")
	}
	if p.Gateway.IsValid() && !p.Prefix.Contains(p.Gateway) {
		return wrong("the gateway %s is not in %s", p.Gateway, p.Prefix)
	}
	for _, r := range p.exclude.Ranges() {
		if !p.Prefix.Contains(r.From()) || !p.Prefix.Contains(r.To()) {
			return wrong("exclude has addresses outside of %s, such as %s", p.Prefix, r)
		}
	}
	return nil
}

// Put writes a new pool. Conflict: there is one of this name, or its prefix overlaps another's.
func (n *Net) Put(p *Pool) error {
	exclude := p.Exclude
	p.Exclude = nil
	p.file = poolPath(p.Name)
	if err := CheckName(p.Name); err != nil {
		return err
	}
	for _, text := range exclude {
		if err := p.addExclude(text); err != nil {
			return err
		}
	}
	if err := p.check(); err != nil {
		return err
	}
	if _, err := n.Pool(p.Name); err == nil {
		return croft.Errorf(croft.Conflict, "there is a pool %s already: change its file, %s", p.Name, p.file)
	}
	n.Pools = append(n.Pools, p)
	if err := n.checkPools(); err != nil {
		return err
	}
	f := poolFile{Prefix: p.Prefix.String(), Exclude: exclude, Tags: p.Tags, Strategy: p.Strategy, Within: p.Within}
	if p.Gateway.IsValid() {
		f.Gateway = p.Gateway.String()
	}
	if p.Hold != DefaultHold {
		f.Hold = p.Hold.String()
	}
	text, err := inYAML(f)
	n.replace(p.file, text)
	return err
}

// checkPools checks the pools together.
func (n *Net) checkPools() error {
	slices.SortFunc(n.Pools, func(a, b *Pool) int { return strings.Compare(a.Name, b.Name) })
	byPlace := slices.Clone(n.Pools)
	slices.SortFunc(byPlace, func(a, b *Pool) int {
		if c := a.Prefix.Compare(b.Prefix); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	var around []*Pool // each has the next in it
	for _, p := range byPlace {
		for len(around) > 0 && !around[len(around)-1].Prefix.Overlaps(p.Prefix) {
			around = around[:len(around)-1]
		}
		outer := ""
		if len(around) > 0 {
			outer = around[len(around)-1].Name
		}
		if err := n.checkNesting(p, outer); err != nil {
			return err
		}
		around = append(around, p)
	}
	return nil
}

// checkNesting checks a pool and the next one that has all of its prefix; empty: none has.
func (n *Net) checkNesting(p *Pool, outer string) error {
	if p.Within == outer {
		if outer == "" {
			return nil
		}
		o, err := n.Pool(outer)
		if err == nil && o.Prefix == p.Prefix {
			return croft.Errorf(croft.Conflict, "%s: the pools %s and %s have the same prefix, %s", p.file, o.Name, p.Name,
				p.Prefix)
		}
		return err
	}
	if p.Within != "" {
		if _, err := n.Pool(p.Within); err != nil {
			return croft.Errorf(croft.Invalid, "%s: within: %w", p.file, err)
		}
		if outer == "" {
			return croft.Errorf(croft.Invalid, "%s: %s is not within the pool %s", p.file, p.Prefix, p.Within)
		}
		return croft.Errorf(croft.Conflict, "%s: the next pool that has %s is %s, not %s: write within: %s", p.file,
			p.Prefix, outer, p.Within, outer)
	}
	return croft.Errorf(croft.Conflict, "%s: the prefix %s overlaps that of the pool %s: if it is meant to be a part of "+
		"that, write within: %s", p.file, p.Prefix, outer, outer)
}

// Pool returns a pool by its name. NotFound.
func (n *Net) Pool(name string) (*Pool, error) {
	var names []string
	for _, p := range n.Pools {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	hint := nearest.Hint(name, names)
	if hint == "" && len(names) == 0 {
		hint = "; there are none yet: croft ip add NAME PREFIX makes one"
	}
	return nil, croft.Errorf(croft.NotFound, "there is no pool %q%s", name, hint)
}

// PoolOf returns the smallest pool that has an address; nil: none has.
func (n *Net) PoolOf(a netip.Addr) *Pool {
	var best *Pool
	for _, p := range n.Pools {
		if p.Prefix.Contains(a) && (best == nil || p.Prefix.Bits() > best.Prefix.Bits()) {
			best = p
		}
	}
	return best
}
