package ipam

import (
	"net/netip"
	"path"
	"time"

	"go4.org/netipx"

	"croft"
	"croft/grid/ipam/setexpr"
)

// The strategies for choosing a free address.
const (
	First = "first" // the lowest free address
	// the first free address at or after the hash of the owner's name, so that branches seldom choose the same address
	Hash = "hash"
)

// DefaultHold is how long a freed address is held for its former owner.
const DefaultHold = 24 * time.Hour

// A Pool is a prefix whose addresses are leased to owners.
type Pool struct {
	Name     string
	Prefix   netip.Prefix
	Exclude  []string   // addresses, ranges and prefixes that the pool never gives
	Gateway  netip.Addr // the zero Addr: no gateway
	Tags     []string   // tags of every address in the prefix
	Strategy string
	Hold     time.Duration
	Within   string // the enclosing pool, which gives no addresses of this pool; empty: none

	file    string
	exclude *netipx.IPSet
}

// poolFile is the YAML form of a pool.
type poolFile struct {
	Prefix   string   `yaml:"prefix"`
	Gateway  string   `yaml:"gateway,omitempty"`
	Exclude  []string `yaml:"exclude,omitempty"`
	Tags     []string `yaml:"tags,omitempty"`
	Strategy string   `yaml:"strategy,omitempty"`
	Hold     string   `yaml:"hold,omitempty"`
	Within   string   `yaml:"within,omitempty"`
}

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

// check checks one pool, without regard to the others.
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
