// Package topology converts the locations of hosts to a tree of sites, rows, racks and hosts. It is pure. It promises
// that the same hosts give the same tree in the same order, that two texts with the same meaning give equal paths, and
// that distances between hosts are symmetric.
package topology

import (
	"strings"

	"croft"
	"croft/internal/lazyregexp"
)

// Path leads from the top of the tree to a location. Paths are comparable; the zero Path is the top. Levels
// between the top and the location may be missing.
type Path struct {
	names [len(croft.Levels)]string // by level; empty: the path does not name that level
}

// partForm is the form of one part of a location.
var partForm = lazyregexp.New(`^[a-z0-9]([a-z0-9-]{0,126}[a-z0-9])?$`)

// Parse reads a location such as site1/row2/rack7 or site1.row2.rack7. Parts are site, row, rack and host, in this
// order; a part that skips a level has the form level=name: site1/rack=rack7. An empty text is the top. Invalid.
func Parse(text string) (Path, error) {
	var p Path
	separator := "/"
	if !strings.Contains(text, separator) {
		separator = "."
	}
	whole := strings.Trim(text, "/")
	if whole == "" {
		return p, nil
	}
	depth := -1
	for part := range strings.SplitSeq(whole, separator) {
		name, next := part, depth+1
		if level, rest, explicit := strings.Cut(part, "="); explicit {
			name, next = rest, croft.Level(level).Depth()
			if next < 0 {
				return Path{}, croft.Errorf(croft.Invalid,
					"the location %q names a level %q: there are site, row, rack and host", text, level)
			}
		}
		switch {
		case next >= len(p.names):
			return Path{}, croft.Errorf(croft.Invalid,
				"the location %q has more than four parts: write site/row/rack, with dashes for what is finer", text)
		case next <= depth:
			return Path{}, croft.Errorf(croft.Invalid,
				"the location %q names a %s below a %s: write site, row, rack in this order, each once", text,
				croft.Levels[next], croft.Levels[depth])
		case !partForm.MatchString(name):
			return Path{}, croft.Errorf(croft.Invalid,
				"the location %q has a part %q: use a to z, 0 to 9 and dashes in between, 128 characters at most", text,
				name)
		}
		p.names[next], depth = name, next
	}
	return p, nil
}

// Of returns the path of a host: its location, followed by the host's ID. If the host has no location and its name has
// four parts, such as site1.row1.rack1.host1, the name is used as the location. Invalid: its location has no valid
// form.
func Of(host croft.Host) (Path, error) {
	location := host.Location
	if location == "" && strings.Count(host.Name, ".") == len(croft.Levels)-1 {
		location = host.Name
	}
	p, err := Parse(location)
	if err != nil && host.Location == "" {
		p, err = Path{}, nil // the name is not a location
	}
	p.names[len(p.names)-1] = string(host.ID)
	return p, err
}

// String returns the path in its canonical form, which Parse reads.
func (p Path) String() string {
	var parts []string
	last := -1
	for i, name := range p.names {
		switch {
		case name == "":
			continue
		case i == last+1:
			parts = append(parts, name)
		default:
			parts = append(parts, string(croft.Levels[i])+"="+name)
		}
		last = i
	}
	return strings.Join(parts, "/")
}

// Level returns the level of the location; empty: the top.
func (p Path) Level() croft.Level {
	for i := len(p.names) - 1; i >= 0; i-- {
		if p.names[i] != "" {
			return croft.Levels[i]
		}
	}
	return ""
}

// Name returns the last part.
func (p Path) Name() string {
	if level := p.Level(); level != "" {
		return p.names[level.Depth()]
	}
	return ""
}

// Parent returns the location that directly contains p. The top is its own parent.
func (p Path) Parent() Path {
	if level := p.Level(); level != "" {
		p.names[level.Depth()] = ""
	}
	return p
}

// At returns the location of the given level that contains p or equals it. If p does not name this level, the next
// finer level that it names replaces it: a host whose rack is unknown counts as a separate rack. If p ends above the
// level, At returns p.
func (p Path) At(level croft.Level) Path {
	depth := level.Depth()
	for depth < len(p.names)-1 && p.names[depth] == "" {
		depth++
	}
	for i := depth + 1; i < len(p.names); i++ {
		p.names[i] = ""
	}
	return p
}

// In reports whether p is the location or in it.
func (p Path) In(location Path) bool {
	level := location.Level()
	if level == "" {
		return true
	}
	depth := level.Depth()
	for i := range depth + 1 {
		if p.names[i] != location.names[i] {
			return false
		}
	}
	return true
}

// compare orders paths as the tree lists them: a location comes before the locations in it.
func compare(a, b Path) int {
	for i := range a.names {
		if n := strings.Compare(a.names[i], b.names[i]); n != 0 {
			return n
		}
	}
	return 0
}
