package topology

import "croft"

// Far is the distance between hosts that have no location in common.
const Far = len(croft.Levels)

// Distance returns how many levels must be climbed from one location to find the other: 0 if one of them is in the
// other, 1 in the same rack, 2 in the same row, 3 in the same site, else Far. Among hosts it is an ultrametric.
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

// Distances holds distances that an operator states and that replace those of the tree. The zero value holds none.
type Distances struct {
	stated map[[2]Path]int
}

// State sets the distance between two locations, either way, for everything in them. Invalid: one is in the
// other, or the distance is negative or stated already with another value.
func (d *Distances) State(a, b Path, distance int) error {
	if compare(a, b) > 0 {
		a, b = b, a
	}
	switch before, known := d.stated[[2]Path{a, b}]; {
	case a.In(b) || b.In(a):
		return croft.Errorf(croft.Invalid, "the distance between %q and %q: one is in the other", a, b)
	case distance < 0:
		return croft.Errorf(croft.Invalid, "the distance between %s and %s is %d: write 0 or more", a, b, distance)
	case known && before != distance:
		return croft.Errorf(croft.Invalid, "the distance between %s and %s is stated as %d and as %d", a, b, before,
			distance)
	}
	if d.stated == nil {
		d.stated = map[[2]Path]int{}
	}
	d.stated[[2]Path{a, b}] = distance
	return nil
}

// Between returns the stated distance of the finest locations that hold a and b, else Distance. Of equally fine
// pairs the smaller distance counts.
func (d Distances) Between(a, b Path) int {
	if len(d.stated) == 0 || a.In(b) || b.In(a) {
		return Distance(a, b)
	}
	best, distance := 0, 0
	for x := a; x != (Path{}); x = x.Parent() {
		for y := b; y != (Path{}); y = y.Parent() {
			pair := [2]Path{x, y}
			if compare(x, y) > 0 {
				pair = [2]Path{y, x}
			}
			stated, known := d.stated[pair]
			fine := x.Level().Depth() + y.Level().Depth() + 1
			if known && (fine > best || fine == best && stated < distance) {
				best, distance = fine, stated
			}
		}
	}
	if best == 0 {
		return Distance(a, b)
	}
	return distance
}
