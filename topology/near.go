package topology

import (
	"croft"
)

// Reach returns the distance of a host from a location that an instance is to be near to. Invalid: the host's location
// has no valid form.
func Reach(near croft.Near, host croft.Host) (int, error) {
	to, err := Parse(near.Location)
	if err != nil {
		return Far, err
	}
	at, err := Of(host)
	if err != nil {
		return Far, err
	}
	return Distance(at, to), nil
}

// Admit checks whether a host is near enough to all locations that an instance is to be near to, and returns the sum of
// the distances. NoCapacity: it is not, or its location has no valid form.
func Admit(all []croft.Near, host croft.Host) (sum int, err error) {
	for _, near := range all {
		distance, err := Reach(near, host)
		if err != nil && near.Soft {
			distance, err = Far, nil
		}
		if err != nil {
			return 0, croft.Errorf(croft.NoCapacity, "may be far from %s: %w", near.To, err)
		}
		if err := near.Admit(distance); err != nil {
			return 0, err
		}
		sum += distance
	}
	return sum, nil
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
