package placement

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
)

// inventory is what a provider offers of one resource class.
type inventory struct {
	class    id
	total    int64
	reserved int64
	minUnit  int64
	maxUnit  int64
	stepSize int64
	ratio    float64
}

// capacity is how much of it may be allocated in all.
func (i *inventory) capacity() int64 {
	c := float64(i.total-i.reserved) * i.ratio
	if c >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(c)
}

// fits tells whether amount more may be allocated in one piece.
func (i *inventory) fits(used, amount int64) bool {
	return amount >= i.minUnit && amount <= i.maxUnit && amount%i.stepSize == 0 &&
		float64(used+amount) <= float64(i.total-i.reserved)*i.ratio
}

// amount is so much of a class.
type amount struct {
	class id
	n     int64
}

// order is an object's place in the order of creation.
type order struct {
	revision int64
	index    int // among those that one transaction created
}

func (o order) compare(p order) int {
	return cmp.Or(cmp.Compare(o.revision, p.revision), cmp.Compare(o.index, p.index))
}

// providerData is a resource provider, free of pointers to others. Slices in it are
// never changed, only replaced.
type providerData struct {
	uuid, name  string
	parent      string // UUID, empty for a root
	generation  int64
	inventories []inventory // by class
	usage       []amount    // by class, none of them 0
	traits      []id        // ascending
	aggregates  []string    // UUIDs, as put
	created     int64       // seconds since 1970
	updated     int64       // likewise; 0: never
	order       order
	modified    int64 // revision of the provider's entry; 0: not stored
	fence       int64 // revision of its generation's entry
}

// changed is when it was changed last, in seconds since 1970. Claims do not count.
func (p *providerData) changed() int64 { return max(p.created, p.updated) }

func (p *providerData) inventory(class id) *inventory {
	for i := range p.inventories {
		if p.inventories[i].class == class {
			return &p.inventories[i]
		}
	}
	return nil
}

func (p *providerData) used(class id) int64 {
	for _, u := range p.usage {
		if u.class == class {
			return u.n
		}
	}
	return 0
}

// classes returns the classes it has inventory of.
func (p *providerData) classes() []id {
	ids := make([]id, len(p.inventories))
	for i, inv := range p.inventories {
		ids[i] = inv.class
	}
	return ids
}

// use adds n, which may be negative, to what is used of a class.
func (p *providerData) use(class id, n int64) {
	at, found := slices.BinarySearchFunc(p.usage, class, func(a amount, c id) int { return cmp.Compare(a.class, c) })
	switch usage := slices.Clone(p.usage); {
	case !found:
		p.usage = slices.Insert(usage, at, amount{class, n})
	case usage[at].n+n == 0:
		p.usage = slices.Delete(usage, at, at+1)
	default:
		usage[at].n += n
		p.usage = usage
	}
}

// allocation is what a consumer has of one provider and class.
type allocation struct {
	provider string // UUID
	class    id
	n        int64
}

// consumerData is a consumer; it exists as long as it has allocations.
type consumerData struct {
	uuid          string
	generation    int64
	project, user string
	kind          string // consumer type; empty: unknown
	allocations   []allocation
	created       int64
	updated       int64
	modified      int64 // revision of its entry; 0: not stored
}

// The stored forms. A field that is added must have a meaning when absent.
type (
	providerRecord struct {
		Name        string                     `json:"name"`
		Parent      string                     `json:"parent,omitempty"`
		Inventories map[string]inventoryRecord `json:"inventories,omitempty"`
		Traits      []string                   `json:"traits,omitempty"`
		Aggregates  []string                   `json:"aggregates,omitempty"`
		Created     int64                      `json:"created"`
		Updated     int64                      `json:"updated,omitempty"`
		Index       int                        `json:"index,omitempty"`
	}
	inventoryRecord struct {
		Total    int64   `json:"total"`
		Reserved int64   `json:"reserved,omitempty"`
		MinUnit  int64   `json:"min_unit"`
		MaxUnit  int64   `json:"max_unit"`
		StepSize int64   `json:"step_size"`
		Ratio    float64 `json:"allocation_ratio"`
	}
	consumerRecord struct {
		Generation  int64                       `json:"generation"`
		Project     string                      `json:"project"`
		User        string                      `json:"user"`
		Type        string                      `json:"type,omitempty"`
		Allocations map[string]map[string]int64 `json:"allocations"` // provider -> class -> amount
		Created     int64                       `json:"created"`
		Updated     int64                       `json:"updated,omitempty"`
	}
	nameRecord struct {
		Created int64 `json:"created"`
	}
)

// vocabulary translates between the names that are stored and ids.
type vocabulary interface {
	className(id) string
	traitName(id) string
}

func encodeProvider(p *providerData, v vocabulary) []byte {
	r := providerRecord{Name: p.name, Parent: p.parent, Aggregates: p.aggregates,
		Created: p.created, Updated: p.updated, Index: p.order.index}
	if len(p.inventories) > 0 {
		r.Inventories = make(map[string]inventoryRecord, len(p.inventories))
	}
	for _, i := range p.inventories {
		r.Inventories[v.className(i.class)] = inventoryRecord{i.total, i.reserved, i.minUnit, i.maxUnit, i.stepSize, i.ratio}
	}
	for _, t := range p.traits {
		r.Traits = append(r.Traits, v.traitName(t))
	}
	return encode(r)
}

func encodeConsumer(c *consumerData, v vocabulary) []byte {
	r := consumerRecord{Generation: c.generation, Project: c.project, User: c.user, Type: c.kind,
		Created: c.created, Updated: c.updated, Allocations: map[string]map[string]int64{}}
	for _, a := range c.allocations {
		if r.Allocations[a.provider] == nil {
			r.Allocations[a.provider] = map[string]int64{}
		}
		r.Allocations[a.provider][v.className(a.class)] = a.n
	}
	return encode(r)
}

func encodeGeneration(n int64) []byte { return strconv.AppendInt(nil, n, 10) }

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("placement: encode %T: %v", v, err)) // plain structs of ours
	}
	return b
}

// decodeProvider fills in what a provider's entry says.
func decodeProvider(p *providerData, value []byte, classes, traits *names) error {
	var r providerRecord
	if err := json.Unmarshal(value, &r); err != nil {
		return err
	}
	p.name, p.parent, p.aggregates = r.Name, r.Parent, r.Aggregates
	p.created, p.updated = r.Created, r.Updated
	p.inventories, p.traits = make([]inventory, 0, len(r.Inventories)), make([]id, 0, len(r.Traits))
	for name, i := range r.Inventories {
		p.inventories = append(p.inventories, inventory{classes.intern(name), i.Total, i.Reserved, i.MinUnit, i.MaxUnit, i.StepSize, i.Ratio})
	}
	sortInventories(p.inventories)
	for _, name := range r.Traits {
		p.traits = insertID(p.traits, traits.intern(name))
	}
	p.order.index = r.Index
	return nil
}

func sortInventories(list []inventory) {
	slices.SortFunc(list, func(a, b inventory) int { return cmp.Compare(a.class, b.class) })
}

// decodeConsumer fills in what a consumer's entry says.
func decodeConsumer(c *consumerData, value []byte, classes *names) error {
	var r consumerRecord
	if err := json.Unmarshal(value, &r); err != nil {
		return err
	}
	c.generation, c.project, c.user, c.kind = r.Generation, r.Project, r.User, r.Type
	c.created, c.updated = r.Created, r.Updated
	c.allocations = nil
	for _, provider := range slices.Sorted(maps.Keys(r.Allocations)) {
		for name, n := range r.Allocations[provider] {
			c.allocations = append(c.allocations, allocation{provider, classes.intern(name), n})
		}
	}
	slices.SortStableFunc(c.allocations, func(a, b allocation) int {
		return cmp.Or(cmp.Compare(a.provider, b.provider), cmp.Compare(a.class, b.class))
	})
	return nil
}
