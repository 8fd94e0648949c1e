package topology

import (
	"slices"
	"sort"

	"croft"
)

// Location is a site, row, rack or host of a tree.
type Location struct {
	Path   Path
	Host   croft.HostID // set for hosts
	Parent int          // index in the tree; -1: none
	end    int          // index after the last location in it
}

// Tree holds the locations of hosts in depth-first order: a location comes before the locations in it, and siblings are
// sorted by name. Indexes are stable for equal hosts.
type Tree struct {
	all []Location
}

// New builds the tree of hosts. Hosts whose location has no valid form are at the top, as if they had no location.
func New(hosts []croft.Host) *Tree {
	seen := map[Path]bool{}
	t := &Tree{}
	for _, h := range hosts {
		p, _ := Of(h) // without a valid location, p is only the host
		for at := p; at != (Path{}) && !seen[at]; at = at.Parent() {
			seen[at] = true
			t.all = append(t.all, Location{Path: at})
		}
	}
	slices.SortFunc(t.all, func(a, b Location) int { return compare(a.Path, b.Path) })
	t.link()
	return t
}

// link sets the fields that follow from the order of the locations.
func (t *Tree) link() {
	var open []int // the locations that contain the current one
	closeTo := func(n, end int) {
		for len(open) > n {
			t.all[open[len(open)-1]].end = end
			open = open[:len(open)-1]
		}
	}
	for i := range t.all {
		at := &t.all[i]
		n := len(open)
		for n > 0 && !at.Path.In(t.all[open[n-1]].Path) {
			n--
		}
		closeTo(n, i)
		at.Parent = -1
		if n > 0 {
			at.Parent = open[n-1]
		}
		if at.Path.Level() == croft.LevelHost {
			at.Host = croft.HostID(at.Path.Name())
		}
		open = append(open, i)
	}
	closeTo(0, len(t.all))
}

// Len returns the number of locations.
func (t *Tree) Len() int { return len(t.all) }

// At returns the location with an index from 0 to Len()-1.
func (t *Tree) At(i int) Location { return t.all[i] }

// Find returns the index of a location; -1: no host is in it.
func (t *Tree) Find(p Path) int {
	i := sort.Search(len(t.all), func(i int) bool { return compare(t.all[i].Path, p) >= 0 })
	if i < len(t.all) && t.all[i].Path == p {
		return i
	}
	return -1
}

// Hosts returns the hosts in a location, in order; -1: all hosts.
func (t *Tree) Hosts(i int) []croft.HostID {
	first, end := t.span(i)
	if i >= 0 {
		first = i // a host contains itself
	}
	var hosts []croft.HostID
	for _, at := range t.all[first:end] {
		if at.Host != "" {
			hosts = append(hosts, at.Host)
		}
	}
	return hosts
}

// span returns the range of the indexes of the locations in a location.
func (t *Tree) span(i int) (first, end int) {
	if i < 0 {
		return 0, len(t.all)
	}
	return i + 1, t.all[i].end
}
