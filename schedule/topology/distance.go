package topology

import "croft"

// Far is the distance between hosts that have no location in common.
const Far = len(croft.Levels)

// Distance returns how many levels must be climbed from one location to reach the other: 0 if one of them is in the
// other, 1 in the same rack, 2 in the same row, 3 in the same site, else Far. Between hosts it is an ultrametric.
func Distance(a, b Path) int {
	if a.In(b) || b.In(a) {
		return 0
	}
	for i := len(croft.Levels) - 1; i >= 0; i-- {
		if level := croft.Levels[i]; a.At(level) == b.At(level) {
			return len(croft.Levels) - 1 - i
		}
	}
	return Far
}

// End is one end of a distance: a location, a host or an aggregate.
type End struct {
	Path      Path
	Aggregate string // set if the end is an aggregate
	hosts     croft.Aggregate
	members   map[Path]bool // its hosts, and their locations at each level
}

// name is a name that stated distances can use for an end, or for an aggregate or location that contains it. The name
// with the highest explicit takes precedence.
type name struct {
	text     string
	explicit int
}

// How explicit a name is: a host's name is more explicit than an aggregate's, which is more explicit than a location's.
const (
	explicitAggregate = len(croft.Levels)
	explicitHost      = len(croft.Levels) + 1
)

// Distances are the stated distances of one type, and the aggregates that they name.
type Distances struct {
	stated     map[[2]string]int
	aggregates map[string]croft.Aggregate
}

// NewDistances prepares stated distances. Only the aggregates that they name are used.
func NewDistances(all croft.Distances, aggregates map[string]croft.Aggregate) Distances {
	d := Distances{map[[2]string]int{}, map[string]croft.Aggregate{}}
	for _, row := range all.Distances {
		d.stated[[2]string{row.A, row.B}] = row.Distance
	}
	for _, name := range all.Names() {
		if a, there := aggregates[name]; there {
			d.aggregates[name] = a
		}
	}
	return d
}

// names lists the names of an end, and of the aggregates and locations that contain it.
func (d Distances) names(e End) (all []name) {
	if e.Aggregate != "" {
		return []name{{e.Aggregate, explicitAggregate}}
	}
	if e.Path.Level() == croft.LevelHost {
		id := croft.HostID(e.Path.Name())
		all = append(all, name{string(id), explicitHost})
		for text, a := range d.aggregates {
			if a.Has(id) {
				all = append(all, name{text, explicitAggregate})
			}
		}
		e.Path = e.Path.Parent()
	}
	for ; e.Path != (Path{}); e.Path = e.Path.Parent() {
		text := e.Path.String()
		// the name of an aggregate takes precedence over a location, as in bounds
		if _, taken := d.aggregates[text]; !taken {
			all = append(all, name{text, e.Path.Level().Depth() + 1})
		}
	}
	return all
}

// Stated returns the distance that is stated for two ends, or for aggregates or locations that contain them; false:
// none is stated. The most explicit pair takes precedence; among equally explicit pairs, the smaller distance applies.
func (d Distances) Stated(a, b End) (distance int, stated bool) {
	if len(d.stated) == 0 {
		return 0, false
	}
	best := 0
	others := d.names(b)
	for _, x := range d.names(a) {
		for _, y := range others {
			pair := [2]string{min(x.text, y.text), max(x.text, y.text)}
			found, known := d.stated[pair]
			explicit := x.explicit + y.explicit
			if known && (explicit > best || explicit == best && found < distance) {
				best, distance = explicit, found
			}
		}
	}
	return distance, best > 0
}

// Holds reports whether one of two ends contains the other or equals it.
func Holds(a, b End) bool {
	switch {
	case a.Aggregate != "" && b.Aggregate != "":
		return a.Aggregate == b.Aggregate
	case a.Aggregate != "":
		return b.Path.Level() == croft.LevelHost && a.hosts.Has(croft.HostID(b.Path.Name()))
	case b.Aggregate != "":
		return Holds(b, a)
	}
	return a.Path.In(b.Path) || b.Path.In(a.Path)
}

// Derived returns the distance that follows from locations. The distance to an aggregate is the distance to the nearest
// of its hosts.
func Derived(a, b End) int {
	switch {
	case a.Aggregate == "" && b.Aggregate == "":
		return Distance(a.Path, b.Path)
	case a.Aggregate == "":
		a, b = b, a
	}
	if b.Aggregate == "" {
		return a.nearest(b.Path)
	}
	least := Far
	for path := range b.members {
		if path.Level() == croft.LevelHost {
			least = min(least, a.nearest(path))
		}
	}
	return least
}

// nearest returns the distance of a location or host to the nearest host of an aggregate.
func (e End) nearest(p Path) int {
	if e.members[p] {
		return 0
	}
	for i := len(croft.Levels) - 1; i >= 0; i-- {
		if at := p.At(croft.Levels[i]); at != (Path{}) && e.members[at] {
			return len(croft.Levels) - 1 - i
		}
	}
	return Far
}

// Between returns the distance of a type between two ends, and whether it is stated. known is false if the distance is
// unknown.
func (d Distances) Between(kind string, a, b End) (distance int, stated, known bool) {
	if Holds(a, b) {
		return 0, false, true
	}
	if distance, stated = d.Stated(a, b); stated {
		return distance, true, true
	}
	if kind != croft.FailureDistance {
		return 0, false, false
	}
	return Derived(a, b), false, true
}

// AggregateEnd returns the End of an aggregate. hosts must contain the hosts whose locations are used.
func AggregateEnd(a croft.Aggregate, hosts map[croft.HostID]croft.Host) End {
	e := End{Aggregate: a.Name, hosts: a, members: map[Path]bool{}}
	for _, id := range a.Hosts {
		host := hosts[id]
		host.ID = id
		path, err := Of(host)
		if err != nil {
			path = hostPath(id)
		}
		for _, level := range croft.Levels {
			e.members[path.At(level)] = true
		}
	}
	return e
}

// hostPath returns the path of a host whose location is unknown.
func hostPath(id croft.HostID) (p Path) {
	p.names[croft.LevelHost.Depth()] = string(id)
	return p
}
