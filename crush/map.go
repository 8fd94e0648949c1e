package crush

import (
	"cmp"
	"fmt"
	"slices"
)

// ID identifies a device (0 and above) or a bucket (below 0). IDs are inputs of the hash, so changing them moves all
// data.
type ID int32

// Weight is a share in 16.16 fixed point; One is 1.0. An item of weight 0 gets nothing.
type Weight uint32

// One is the weight 1.0.
const One Weight = 1 << 16

// WeightOf converts a share as crushtool does: to single precision, then truncated. It is defined from 0 to 65535.
func WeightOf(share float64) Weight { return Weight(float32(share) * float32(One)) }

// Type is the number of a bucket's type; devices are of type 0.
type Type int32

// Limits of maps.
const (
	MaxDevice   = 1 << 20      // upper bound of device IDs, exclusive
	MaxBuckets  = 1 << 20      // bucket IDs are greater than its negative
	MaxWeight   = 10_000 * One // of a device
	maxDepth    = 32
	maxSteps    = 256
	maxReplicas = 1 << 10
)

// Map is a tree of weighted buckets above devices, with the rules that choose among them.
type Map struct {
	Tunables Tunables
	Devices  []Device
	Types    []TypeName
	Buckets  []Bucket // in any order; crushtool's text needs children before their parents
	Rules    []Rule
}

// Tunables are the settings of the algorithm.
type Tunables struct {
	TotalTries  int  // number of tries of a choice before it is given up; 50
	DescendOnce bool // try a leaf once, then another bucket; true
	VaryR       int  // how the tries of a leaf depend on the tries of its bucket; 1
	Stable      bool // a leaf's choice does not depend on its position; true
}

// Jewel are the tunables that Ceph calls optimal since its release jewel.
var Jewel = Tunables{TotalTries: 50, DescendOnce: true, VaryR: 1, Stable: true}

// Device is a leaf of the tree.
type Device struct {
	ID    ID
	Name  string
	Class string // such as ssd; empty: none
}

// TypeName names a type of buckets. A bucket holds devices and buckets of lower types.
type TypeName struct {
	Type Type
	Name string
}

// Bucket is an inner node of the tree.
type Bucket struct {
	ID      ID
	Name    string
	Type    Type
	Items   []Item
	Shadows []Shadow // the bucket's IDs for the devices of single classes
}

// Item is a child of a bucket. Its weight counts in this bucket, independent of the sum of the child's own items.
type Item struct {
	ID     ID
	Weight Weight
}

// Shadow is the ID of a bucket that holds only devices of a class.
type Shadow struct {
	Class string
	ID    ID
}

// Weight returns the sum of the items' weights.
func (b *Bucket) Weight() Weight {
	var sum Weight
	for _, it := range b.Items {
		sum += it.Weight
	}
	return sum
}

// Rule is a list of steps.
type Rule struct {
	ID    int
	Name  string
	Kind  string // replicated or erasure; only informational
	Min   int    // likewise: minimum number of replicas
	Max   int    // maximum number of replicas
	Steps []Step
}

// Op is the operation of a step.
type Op int

// The steps.
const (
	Take             Op = iota + 1 // start at a bucket or device, or at a bucket's devices of one class
	ChooseFirstn                   // choose buckets or devices of a type; items after a failed one move up
	ChooseIndep                    // likewise, but each item keeps its position, and a failed one leaves a hole
	ChooseLeafFirstn               // choose buckets of a type, and one device in each
	ChooseLeafIndep
	Emit
	SetChooseTries     // for the steps that follow
	SetChooseLeafTries // likewise
)

// Step is an instruction of a rule.
type Step struct {
	Op    Op
	Item  ID     // of Take
	Class string // of Take; empty: all
	N     int    // number of items: below 1, that many fewer than requested; number of tries
	Type  Type   // type of the chosen items
}

// None marks a position that could not be filled.
const None ID = 0x7fffffff

// Bucket returns the bucket with an ID; nil: none exists.
func (m *Map) Bucket(id ID) *Bucket {
	for i := range m.Buckets {
		if m.Buckets[i].ID == id {
			return &m.Buckets[i]
		}
	}
	return nil
}

// Roots returns the buckets without a parent, in order.
func (m *Map) Roots() (roots []*Bucket) {
	inner := map[ID]bool{}
	for _, b := range m.Buckets {
		for _, it := range b.Items {
			inner[it.ID] = true
		}
	}
	for i := range m.Buckets {
		if b := &m.Buckets[i]; !inner[b.ID] {
			roots = append(roots, b)
		}
	}
	return roots
}

// Check reports all errors of the map: duplicate names and IDs, missing items, buckets in themselves or in two parents,
// types in the wrong order, weights out of range. nil: no errors.
func (m *Map) Check() []error {
	c := &checking{m: m, names: map[string]bool{}, kinds: map[Type]bool{}, of: map[ID]*Bucket{}, devices: map[ID]bool{}}
	c.types()
	c.things()
	c.tree()
	c.rules()
	return c.errs
}

type checking struct {
	m       *Map
	errs    []error
	names   map[string]bool
	kinds   map[Type]bool
	of      map[ID]*Bucket
	devices map[ID]bool
}

func (c *checking) say(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf(format, args...))
}

func (c *checking) name(what, name string) {
	switch {
	case name == "":
		c.say("a %s has no name", what)
	case c.names[name]:
		c.say("the name %q is given twice", name)
	}
	c.names[name] = true
}

func (c *checking) types() {
	seen := map[string]bool{}
	for _, t := range c.m.Types {
		if c.kinds[t.Type] || seen[t.Name] {
			c.say("type %d %q is given twice", t.Type, t.Name)
		}
		if t.Type < 0 {
			c.say("type %q has the number %d; give 0 or more", t.Name, t.Type)
		}
		c.kinds[t.Type], seen[t.Name] = true, true
	}
}

func (c *checking) things() {
	for _, d := range c.m.Devices {
		c.name("device", d.Name)
		if d.ID < 0 || d.ID >= MaxDevice {
			c.say("device %s has the ID %d; give 0 to %d", d.Name, d.ID, MaxDevice-1)
		}
		if c.devices[d.ID] {
			c.say("device %s has the ID %d, which another has", d.Name, d.ID)
		}
		c.devices[d.ID] = true
	}
	for i := range c.m.Buckets {
		b := &c.m.Buckets[i]
		c.name("bucket", b.Name)
		c.bucketID(b, b.ID)
		for _, s := range b.Shadows {
			c.bucketID(b, s.ID)
		}
		c.of[b.ID] = b
		if b.Type == 0 || !c.kinds[b.Type] {
			c.say("bucket %s has the type %d, which is not a type of buckets", b.Name, b.Type)
		}
	}
}

func (c *checking) bucketID(b *Bucket, id ID) {
	if id >= 0 || id <= -MaxBuckets {
		c.say("bucket %s has the ID %d; give -1 to %d", b.Name, id, 1-MaxBuckets)
	}
	if _, taken := c.of[id]; taken {
		c.say("bucket %s has the ID %d, which another has", b.Name, id)
	}
	c.of[id] = nil
}

func (c *checking) tree() {
	parent := map[ID]string{}
	for _, b := range c.m.Buckets {
		var sum uint64
		for _, it := range b.Items {
			if before, ok := parent[it.ID]; ok && it.ID < 0 {
				c.say("bucket %d is in %s and in %s", it.ID, before, b.Name)
			}
			parent[it.ID] = b.Name
			child := c.of[it.ID]
			switch {
			case it.ID >= 0 && !c.devices[it.ID]:
				c.say("bucket %s contains device %d, which does not exist", b.Name, it.ID)
			case it.ID < 0 && child == nil:
				c.say("bucket %s contains bucket %d, which does not exist", b.Name, it.ID)
			case it.ID < 0 && child.Type >= b.Type:
				c.say("bucket %s contains bucket %s, whose type is not lower than its own", b.Name, child.Name)
			}
			if it.ID >= 0 && it.Weight > MaxWeight {
				c.say("device %d in bucket %s weighs more than %d", it.ID, b.Name, MaxWeight/One)
			}
			sum += uint64(it.Weight)
		}
		if sum != uint64(Weight(sum)) {
			c.say("bucket %s weighs more than %d", b.Name, ^Weight(0)/One)
		}
		if n := len(slices.CompactFunc(slices.SortedFunc(slices.Values(b.Items), func(x, y Item) int {
			return cmp.Compare(x.ID, y.ID)
		}), func(x, y Item) bool { return x.ID == y.ID })); n != len(b.Items) {
			c.say("bucket %s contains an item twice", b.Name)
		}
	}
}

func (c *checking) rules() {
	ids := map[int]bool{}
	names := map[string]bool{}
	for _, r := range c.m.Rules {
		if ids[r.ID] || names[r.Name] {
			c.say("rule %d %s is given twice", r.ID, r.Name)
		}
		ids[r.ID], names[r.Name] = true, true
		if len(r.Steps) > maxSteps {
			c.say("rule %s has more than %d steps", r.Name, maxSteps)
		}
		for _, s := range r.Steps {
			c.step(r.Name, s)
		}
	}
}

func (c *checking) step(rule string, s Step) {
	switch s.Op {
	case Take:
		b := c.of[s.Item]
		switch {
		case s.Item >= 0 && !c.devices[s.Item], s.Item < 0 && b == nil:
			c.say("rule %s takes %d, which does not exist", rule, s.Item)
		case s.Class != "" && b == nil:
			c.say("rule %s takes devices of class %s of a device", rule, s.Class)
		case s.Class != "" && !slices.ContainsFunc(b.Shadows, func(x Shadow) bool { return x.Class == s.Class }):
			c.say("rule %s takes devices of class %s of %s, which has no ID for them", rule, s.Class, b.Name)
		}
	case ChooseFirstn, ChooseIndep, ChooseLeafFirstn, ChooseLeafIndep:
		if s.Type != 0 && !c.kinds[s.Type] {
			c.say("rule %s chooses type %d, which does not exist", rule, s.Type)
		}
		if s.N > maxReplicas || s.N < -maxReplicas {
			c.say("rule %s chooses %d; give %d to %d", rule, s.N, -maxReplicas, maxReplicas)
		}
	case SetChooseTries, SetChooseLeafTries:
		if s.N < 0 || s.N > maxReplicas {
			c.say("rule %s sets %d tries; give 0 to %d", rule, s.N, maxReplicas)
		}
	case Emit:
	default:
		c.say("rule %s has the unknown step %d", rule, s.Op)
	}
}
