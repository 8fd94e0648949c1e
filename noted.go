package croft

// Noted is what is noted about hosts, as far as filters of a request ask for it.
type Noted struct {
	Wanted      map[HostID]bool  // chosen by one of the filters that have to
	Barred      map[HostID]bool  // chosen by one of those that may not
	Generations map[HostID]int64 // of the properties of each host that has any
}

// ByNotes reports whether properties and tags of hosts count for an instance.
func (s Spec) ByNotes() bool { return len(s.Where)+len(s.WhereNot) > 0 }

// Admit checks whether filters of an instance admit a host. NoCapacity: they do not.
func (n Noted) Admit(s Spec, host HostID) error {
	switch {
	case len(s.Where) > 0 && !n.Wanted[host]:
		return Errorf(NoCapacity, "has not the properties that are wanted")
	case n.Barred[host]:
		return Errorf(NoCapacity, "has properties that are not wanted")
	}
	return nil
}

// Generation returns the generation of a host's properties, if they count for an instance.
func (n Noted) Generation(s Spec, host HostID) *int64 {
	if !s.ByNotes() {
		return nil
	}
	generation := n.Generations[host]
	return &generation
}
