package crushmap

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"croft"
	"croft/crush"
	"croft/crush/policy"
	"croft/internal/nearest"
	"croft/schedule/topology"
)

// Policy is a policy compiled for the hosts of a map. It is safe for concurrent use.
type Policy struct {
	m        *Map
	compiled *policy.Compiled
	reach    []crush.ID // devices that it can choose
}

// Choice is a host in the order in which a policy gives hosts for an instance.
type Choice struct {
	Host croft.HostID
	Pass int  // of the policy, from 0; Leftover: after all passes
	Out  bool // drained or silent
}

// Leftover is the pass number of the hosts that no pass chose.
const Leftover = -1

// Compile compiles a stored policy for the map, and caches the result. Invalid: the policy has an error, selects a type
// that does not exist, or can never choose a host. NotFound: no host is in a location that it uses.
func (m *Map) Compile(stored croft.CrushPolicy) (*Policy, error) {
	if p, known := m.compiled.Load(stored.Text); known {
		return p.(*Policy), nil
	}
	p, err := m.compile(stored)
	if err == nil {
		m.compiled.Store(stored.Text, p)
	}
	return p, err
}

func (m *Map) compile(stored croft.CrushPolicy) (*Policy, error) {
	p, err := policy.Parse(stored.Text)
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "policy %s: %w", stored.Name, err)
	}
	at := typeRoot // type of the current buckets
	for n, i := range p {
		switch i.Op {
		case policy.Use:
			if p[n].Name, err = m.bucket(stored.Name, i); err != nil {
				return nil, err
			}
			at = m.text.Bucket(m.buckets[p[n].Name]).Type
		case policy.Select:
			if at, err = below(at, stored.Name, i); err != nil {
				return nil, err
			}
		case policy.Emit:
			at = typeRoot
		}
	}
	compiled, err := policy.Compile(p, &m.text)
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "policy %s: %w", stored.Name, err)
	}
	if !compiled.Offers() {
		return nil, croft.Errorf(croft.Invalid, "policy %s can never choose a host: an instance is one replica, and each "+
			"take of it is for others (take -1 and select -1 T leave out the first)", stored.Name)
	}
	return &Policy{m, compiled, m.reach(compiled)}, nil
}

// bucket returns the name of the bucket that an instruction uses.
func (m *Map) bucket(name string, i policy.Instruction) (string, error) {
	if i.Name == Root {
		return Root, nil
	}
	path, err := topology.Parse(i.Name)
	bucket := bucketOf(path)
	_, there := m.buckets[bucket]
	switch {
	case err == nil && path.Level() == croft.LevelHost:
		return "", croft.Errorf(croft.Invalid, "policy %s, line %d: %s is a host; use a site, a row or a rack, and take "+
			"hosts from it", name, i.Line, i.Name)
	case err == nil && there:
		return bucket, nil
	}
	if _, there := m.buckets[i.Name]; there { // the form that croft crush export writes
		return i.Name, nil
	}
	return "", croft.Errorf(croft.NotFound, "policy %s, line %d: no host is in the location %q%s", name, i.Line, i.Name,
		nearest.Hint(i.Name, topology.Names(slices.Collect(maps.Values(m.Hosts)))))
}

// below returns the type of the buckets that an instruction selects below buckets of another type.
func below(at crush.Type, name string, i policy.Instruction) (crush.Type, error) {
	if i.Name == string(croft.LevelHost) {
		return at, croft.Errorf(croft.Invalid, "policy %s, line %d: hosts are taken, not selected: write take %d in place of "+
			"select %[3]d host", name, i.Line, i.N)
	}
	var types []string
	for _, kind := range []crush.Type{typeSite, typeRow, typeRack} {
		switch {
		case i.Name == string(levels[kind]) && kind < at:
			return kind, nil
		case i.Name == string(levels[kind]):
			return at, croft.Errorf(croft.Invalid, "policy %s, line %d: a %s is not below a %s: select from the site down, "+
				"each type once", name, i.Line, i.Name, levels[at])
		}
		types = append(types, string(levels[kind]))
	}
	return at, croft.Errorf(croft.Invalid, "policy %s, line %d: there is no type %q to select%s; there are %s", name, i.Line,
		i.Name, nearest.Hint(i.Name, types), strings.Join(types, ", "))
}

// Hints returns warnings about parts of a policy that its author may not intend, one sentence each.
func (p *Policy) Hints(stored croft.CrushPolicy) (hints []string) {
	instructions, _ := policy.Parse(stored.Text) // the error is always nil, because Compile accepted the text
	for _, i := range instructions {
		if i.Op == policy.Select && !p.m.names(croft.Level(i.Name)) {
			hints = append(hints, "line "+strconv.Itoa(i.Line)+": no host's location names a "+i.Name+
				", so what is next below counts as one, as in groups")
		}
	}
	if !slices.ContainsFunc(p.reach, func(id crush.ID) bool { return p.m.weights[id] > 0 }) {
		hints = append(hints, "no host that it may choose offers VCPUs, so it chooses none now")
	}
	return hints
}

// names reports whether the location of any host has a part of the level.
func (m *Map) names(level croft.Level) bool {
	for _, h := range m.Hosts {
		if path, err := topology.Of(h); err == nil && path.At(level).Level() == level {
			return true
		}
	}
	return false
}

// reach returns the devices that a policy can choose, in the order of its take instructions.
func (m *Map) reach(compiled *policy.Compiled) (all []crush.ID) {
	seen := map[crush.ID]bool{}
	for _, at := range compiled.Begins() {
		for _, id := range m.below[at] {
			if !seen[id] {
				seen[id] = true
				all = append(all, id)
			}
		}
	}
	return all
}

// Order calls offer with the hosts that the policy chooses for an instance, best first, until offer returns true to
// take one. Each next host is the choice of the policy if all hosts before it were out. Every host is offered once. A
// host that is out keeps its place in this order, and offer must refuse it. Hosts without VCPUs are never offered.
//
// Each pass of the policy tries at most 51 times. After all passes, the hosts in reach of the policy that no pass chose
// follow in the order of a hash, so that an almost full cloud can be filled completely.
func (p *Policy) Order(id croft.InstanceID, offer func(Choice) bool) {
	m := p.m.mappers.Get().(*crush.Mapper)
	defer p.m.mappers.Put(m)
	x, taken := Input(id), false
	given := map[crush.ID]bool{}
	p.compiled.Order(m, x, nil, func(device crush.ID, pass int) bool {
		given[device] = true
		// CRUSH chooses a device without weight only if no item of its bucket has weight.
		if p.m.weights[device] > 0 {
			taken = offer(p.m.choice(device, pass))
		}
		return taken || len(given) == len(p.reach)
	})
	if taken || len(given) == len(p.reach) {
		return
	}
	left := slices.DeleteFunc(slices.Clone(p.reach), func(id crush.ID) bool {
		return given[id] || p.m.weights[id] == 0
	})
	slices.SortFunc(left, func(a, b crush.ID) int {
		return cmp.Or(cmp.Compare(crush.Hash2(x, uint32(a)), crush.Hash2(x, uint32(b))), cmp.Compare(a, b))
	})
	for _, device := range left {
		if offer(p.m.choice(device, Leftover)) {
			return
		}
	}
}

func (m *Map) choice(device crush.ID, pass int) Choice {
	return Choice{Host: m.devices[device], Pass: pass, Out: m.reweights[device] == 0}
}
