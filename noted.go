package croft

// Noted holds the results of a request's filters of host properties and tags.
type Noted struct {
	Wanted      map[HostID]bool  // hosts that match at least one filter of Where
	Barred      map[HostID]bool  // hosts that match a filter of WhereNot
	Generations map[HostID]int64 // of the properties of each host that has any
}

// ByNotes reports whether an instance has filters of host properties and tags.
func (s Spec) ByNotes() bool { return len(s.Where)+len(s.WhereNot) > 0 }

// Admit checks whether the filters of an instance admit a host. NoCapacity: they do not.
func (n Noted) Admit(s Spec, host HostID) error {
	switch {
	case len(s.Where) > 0 && !n.Wanted[host]:
		return Errorf(NoCapacity, "has not the properties that are wanted")
	case n.Barred[host]:
		return Errorf(NoCapacity, "has properties that are not wanted")
	}
	return nil
}

// Generation returns the generation of a host's properties; nil: the instance has no filters.
func (n Noted) Generation(s Spec, host HostID) *int64 {
	if !s.ByNotes() {
		return nil
	}
	generation := n.Generations[host]
	return &generation
}
