package topology

import (
	"errors"
	"maps"
	"slices"

	"croft"
)

// Measure computes the distances of hosts from the locations that an instance wants to be near to, or far from. The
// zero value has no such locations.
type Measure struct {
	wanted  []wanted
	basedOn map[string]int64
}

type wanted struct {
	croft.Near
	to     End
	stated Distances
	err    error // the location has no valid form
}

// NewMeasure prepares a Measure. stated are the stated distances by type, and aggregates the aggregates named in stated
// and Near. hosts must contain the hosts of the aggregates in Near.
func NewMeasure(all []croft.Near, stated map[string]croft.Distances, aggregates map[string]croft.Aggregate,
	hosts map[croft.HostID]croft.Host) Measure {
	m := Measure{basedOn: map[string]int64{}}
	prepared := map[string]Distances{}
	for _, near := range all {
		kind := near.Kind()
		if _, done := prepared[kind]; !done {
			prepared[kind] = NewDistances(stated[kind], aggregates)
		}
		w := wanted{Near: near, stated: prepared[kind]}
		if near.Aggregate {
			a := aggregates[near.Location]
			a.Name = near.Location // without hosts if the aggregate does not exist any more
			w.to = AggregateEnd(a, hosts)
		} else {
			w.to.Path, w.err = Parse(near.Location)
		}
		m.wanted = append(m.wanted, w)
		m.basedOn[croft.DistancesKey(kind)] = stated[kind].Generation
	}
	for _, name := range NamesOf(all, stated) {
		m.basedOn[name] = aggregates[name].Generation
	}
	return m
}

// NamesOf returns the aggregates that affect the distances of an instance: the aggregates named in Near and in the
// stated distances.
func NamesOf(all []croft.Near, stated map[string]croft.Distances) (names []string) {
	for _, near := range all {
		if near.Aggregate {
			names = append(names, near.Location)
		}
		names = append(names, stated[near.Kind()].Names()...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// BasedOn adds the generations of the distances and aggregates that the measure uses, in the form of
// croft.Instance.
func (m Measure) BasedOn(generations map[string]int64) map[string]int64 {
	maps.Copy(generations, m.basedOn)
	return generations
}

// Admit checks whether a host is near enough to all locations that the instance wants to be near to, and far enough
// from the others, and returns the sum of the distances to the former. An unknown distance bars no host, and is greater
// than all known ones. NoCapacity: the host is not admitted, or its location has no valid form.
func (m Measure) Admit(host croft.Host) (sum int, err error) {
	for _, w := range m.wanted {
		distance, err := w.admit(host)
		if err != nil {
			return 0, err
		}
		if !w.Far {
			sum += distance
		}
	}
	return sum, nil
}

// AdmitEach calls bars for each requirement that a host fails, with the reason why it is too far or too near.
func (m Measure) AdmitEach(host croft.Host, bars func(requirement string, err error)) {
	for _, w := range m.wanted {
		if _, err := w.admit(host); err != nil {
			bars(w.String(), err)
		}
	}
}

func (w wanted) admit(host croft.Host) (int, error) {
	at, err := Of(host)
	invalid := errors.Join(err, w.err)
	if err != nil {
		at = hostPath(host.ID) // it is in no location, but may be in aggregates
	}
	distance, stated, known := w.stated.Between(w.Kind(), End{Path: at}, w.to)
	if !known {
		return croft.MaxStatedDistance + 1, nil
	}
	if invalid != nil && !stated && (distance > 0 || w.err != nil) {
		if !w.Soft {
			return 0, croft.Errorf(croft.NoCapacity, "may be far from %s: %w", w.To, invalid)
		}
		distance = Far
	}
	return distance, w.Near.Admit(distance, stated)
}

// Names returns the locations that contain hosts, from sites down to racks, in the form that Parse reads.
func Names(hosts []croft.Host) (names []string) {
	tree := New(hosts)
	for i := range tree.Len() {
		if at := tree.At(i); at.Host == "" {
			names = append(names, at.Path.String())
		}
	}
	return names
}

// Locate returns the location with a path that a user has given, if it contains a host. NotFound: it contains no host.
// Invalid: the text is no path.
func Locate(text string, hosts []croft.Host) (Path, error) {
	p, err := Parse(text)
	if err != nil {
		return p, err
	}
	if p == (Path{}) || New(hosts).Find(p) < 0 {
		return p, croft.Errorf(croft.NotFound, "no host is in the location %q", text)
	}
	return p, nil
}
