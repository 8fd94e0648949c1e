package crush

import "fmt"

// Reason is why a candidate was not chosen; 0: it was.
type Reason int

// The reasons.
const (
	Collision  Reason = iota + 1 // it was chosen already
	Out                          // its reweight is 0
	Reweighted                   // its reweight refuses this input
	Refused                      // the caller refuses it, for example because it is full
	NoDevice                     // it has no usable device for this try
	Empty                        // a bucket on the way has no items
	wrongType                    // no item of the type was found
)

var reasons = map[Reason]string{0: "taken", Collision: "taken already", Out: "out", Reweighted: "reweighted",
	Refused: "refused", NoDevice: "no usable device in it", Empty: "an empty bucket", wrongType: "no such type below"}

// String implements fmt.Stringer.
func (r Reason) String() string {
	if s, ok := reasons[r]; ok {
		return s
	}
	return fmt.Sprintf("reason %d", int(r))
}

// Event is one candidate in a mapping.
type Event struct {
	Step     int  // of the rule, from 0
	Leaf     bool // a device in a bucket that is a candidate
	Position int  // index of the replica
	Try      int  // from 0
	Item     ID   // None: an empty bucket
	Why      Reason
}

// Watch calls the function for each candidate of the following mappings; nil turns that off. Devices in a bucket come
// before the bucket.
func (m *Mapper) Watch(watch func(Event)) { m.watch = watch }

func (m *Mapper) tell(position, try int, item ID, why Reason) {
	if m.watch == nil {
		return
	}
	e := m.seen
	if !e.Leaf {
		e.Position = position
	}
	e.Try, e.Item, e.Why = try, item, why
	m.watch(e)
}

func (m *Mapper) outOfLeaf() { m.seen.Leaf = false }
