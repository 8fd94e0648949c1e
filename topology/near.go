package topology

import (
	"errors"
	"maps"
	"slices"

	"croft"
)

// Measure tells how far hosts are from what an instance is to be near to, or far from. The zero value knows of none.
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

// NewMeasure prepares to measure by stated distances, by type, and the aggregates that these and Near name. Of the
// hosts those count that are in aggregates to be near to or far from.
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
			a.Name = near.Location // without hosts if there is none any more
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

// NamesOf returns the aggregates that count for what an instance is to be near to: those that it is to be near to, and
// those that the stated distances name.
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

// BasedOn adds to generations those of the distances and aggregates by which is measured, as croft.Instance has them.
func (m Measure) BasedOn(generations map[string]int64) map[string]int64 {
	maps.Copy(generations, m.basedOn)
	return generations
}

// Admit checks whether a host is near enough to all that an instance is to be near to, and far enough from what it is
// to be far from, and returns the sum of the distances of the former. A distance that is not known bars no host, and is
// greater than all that are. NoCapacity: it is not, or its location has no valid form.
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

// AdmitEach returns why a host is too far from what an instance is to be near to, or too near, by what says that.
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
		at = hostPath(host.ID) // it is in no location, and may be in aggregates
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

// Names returns the locations that hosts are in, from sites down to racks, each as Parse reads it.
func Names(hosts []croft.Host) (names []string) {
	tree := New(hosts)
	for i := range tree.Len() {
		if at := tree.At(i); at.Host == "" {
			names = append(names, at.Path.String())
		}
	}
	return names
}

// Locate returns the location of which a user has given a path, if a host is in it. NotFound: none is. Invalid: the
// text is no path.
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
