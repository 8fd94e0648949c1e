package ledger

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
)

// Inventory is the amount of one resource class that a provider has.
type Inventory struct {
	Class    ID
	Total    int64
	Reserved int64
	MinUnit  int64
	MaxUnit  int64
	StepSize int64
	Ratio    float64
}

// Capacity is the total amount that may be allocated.
func (i *Inventory) Capacity() int64 {
	c := float64(i.Total-i.Reserved) * i.Ratio
	if c >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(c)
}

// fits reports whether one allocation of amount is allowed in addition to used.
func (i *Inventory) fits(used, amount int64) bool {
	return amount >= i.MinUnit && amount <= i.MaxUnit && amount%i.StepSize == 0 &&
		float64(used+amount) <= float64(i.Total-i.Reserved)*i.Ratio
}

// Amount is an amount of a resource class.
type Amount struct {
	Class ID
	N     int64
}

// NamedAmount is an amount of a resource class that may not exist.
type NamedAmount struct {
	Class string
	N     int64
}

// creationOrder is an object's position in the order of creation.
type creationOrder struct {
	revision int64
	index    int // among the objects created by one transaction
}

func (o creationOrder) compare(p creationOrder) int {
	return cmp.Or(cmp.Compare(o.revision, p.revision), cmp.Compare(o.index, p.index))
}

// ProviderData is a resource provider without its relations to others. Its slices are replaced, never modified, so a
// copy of the struct is a snapshot.
type ProviderData struct {
	UUID, Name  string
	Parent      string // UUID; empty for a root
	Generation  int64
	Inventories []Inventory // by class
	Usage       []Amount    // by class; absent is 0
	Traits      []ID        // ascending
	Aggregates  []string    // UUIDs, in the order they were written
	Created     int64       // seconds since 1970
	Updated     int64       // seconds since 1970; 0: never

	order              creationOrder
	modified           int64 // revision of the provider's entry; 0: not stored
	generationRevision int64 // revision of the entry with its generation
}

// Changed returns the time of the last change other than a claim, in seconds since 1970.
func (p *ProviderData) Changed() int64 { return max(p.Created, p.Updated) }

// Inventory returns the provider's inventory of a class; nil: it has no such inventory.
func (p *ProviderData) Inventory(class ID) *Inventory {
	for i := range p.Inventories {
		if p.Inventories[i].Class == class {
			return &p.Inventories[i]
		}
	}
	return nil
}

// Used returns the amount of a class that is allocated from the provider.
func (p *ProviderData) Used(class ID) int64 {
	for _, u := range p.Usage {
		if u.Class == class {
			return u.N
		}
	}
	return 0
}

// has reports whether n more of a class could be allocated from the provider.
func (p *ProviderData) has(class ID, n int64) bool {
	i := p.Inventory(class)
	return i != nil && i.fits(p.Used(class), n)
}

// classes returns the classes of the inventories.
func (p *ProviderData) classes() []ID {
	ids := make([]ID, len(p.Inventories))
	for i, inv := range p.Inventories {
		ids[i] = inv.Class
	}
	return ids
}

// use adds n, which may be negative, to the usage of a class.
func (p *ProviderData) use(class ID, n int64) { p.Usage = AddAmount(p.Usage, class, n) }

// AddAmount returns a list, sorted by class and without zeros, with n added to the amount of a class. The argument is
// not changed.
func AddAmount(list []Amount, class ID, n int64) []Amount {
	at, found := slices.BinarySearchFunc(list, class, func(a Amount, c ID) int { return cmp.Compare(a.Class, c) })
	sum := slices.Clone(list)
	switch {
	case !found:
		return slices.Insert(sum, at, Amount{class, n})
	case sum[at].N+n == 0:
		return slices.Delete(sum, at, at+1)
	}
	sum[at].N += n
	return sum
}

// Allocation is an amount granted to a consumer from one provider and class.
type Allocation struct {
	Provider string // UUID
	Class    ID
	N        int64
}

// ConsumerData is a consumer. It exists while it has allocations.
type ConsumerData struct {
	UUID          string
	Generation    int64
	Project, User string
	Type          string       // consumer type; empty: unknown
	Allocations   []Allocation // by provider, then class
	Created       int64        // seconds since 1970
	Updated       int64        // seconds since 1970; 0: never

	modified int64 // revision of its entry; 0: not stored
}

// Version returns the revision of the store at which the consumer was last written. No other state of a consumer of
// this UUID, before or after, has the same version. The generation does not have this property, because it starts again
// with each new consumer.
func (c *ConsumerData) Version() int64 { return c.modified }

// The stored forms. A field that is added later must have a meaning when it is missing.
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

// StoredForm returns a pointer to an empty record of a kind, as its entries are encoded. Stores use it to find the
// fields of an entry that a newer program added, and keep these. nil: entries of the kind are no JSON objects.
func StoredForm(kind Kind) any {
	switch kind {
	case KindProvider:
		return &providerRecord{}
	case KindConsumer:
		return &consumerRecord{}
	case KindClass, KindTrait:
		return &nameRecord{}
	}
	return nil
}

// Vocabulary translates IDs to the names stored and shown.
type Vocabulary interface {
	ClassName(ID) string
	TraitName(ID) string
}

func encodeProvider(p *ProviderData, v Vocabulary) []byte {
	r := providerRecord{Name: p.Name, Parent: p.Parent, Aggregates: p.Aggregates,
		Created: p.Created, Updated: p.Updated, Index: p.order.index}
	if len(p.Inventories) > 0 {
		r.Inventories = make(map[string]inventoryRecord, len(p.Inventories))
	}
	for _, i := range p.Inventories {
		r.Inventories[v.ClassName(i.Class)] = inventoryRecord{i.Total, i.Reserved, i.MinUnit, i.MaxUnit, i.StepSize,
			i.Ratio}
	}
	for _, t := range p.Traits {
		r.Traits = append(r.Traits, v.TraitName(t))
	}
	return encode(r)
}

func encodeConsumer(c *ConsumerData, v Vocabulary) []byte {
	r := consumerRecord{Generation: c.Generation, Project: c.Project, User: c.User, Type: c.Type,
		Created: c.Created, Updated: c.Updated, Allocations: map[string]map[string]int64{}}
	for _, a := range c.Allocations {
		if r.Allocations[a.Provider] == nil {
			r.Allocations[a.Provider] = map[string]int64{}
		}
		r.Allocations[a.Provider][v.ClassName(a.Class)] = a.N
	}
	return encode(r)
}

func encodeGeneration(n int64) []byte { return strconv.AppendInt(nil, n, 10) }

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("ledger: encode %T: %v", v, err)) // our own plain structs always encode
	}
	return b
}

// decodeProvider sets a provider from the value of its entry.
func decodeProvider(p *ProviderData, value []byte, classes, traits *Symbols) error {
	var r providerRecord
	if err := json.Unmarshal(value, &r); err != nil {
		return err
	}
	p.Name, p.Parent, p.Aggregates = r.Name, r.Parent, r.Aggregates
	p.Created, p.Updated = r.Created, r.Updated
	p.Inventories, p.Traits = make([]Inventory, 0, len(r.Inventories)), make([]ID, 0, len(r.Traits))
	for name, i := range r.Inventories {
		p.Inventories = append(p.Inventories, Inventory{classes.intern(name), i.Total, i.Reserved, i.MinUnit, i.MaxUnit,
			i.StepSize, i.Ratio})
	}
	sortInventories(p.Inventories)
	for _, name := range r.Traits {
		p.Traits = insertID(p.Traits, traits.intern(name))
	}
	p.order.index = r.Index
	return nil
}

func sortInventories(list []Inventory) {
	slices.SortFunc(list, func(a, b Inventory) int { return cmp.Compare(a.Class, b.Class) })
}

// decodeConsumer sets a consumer from the value of its entry.
func decodeConsumer(c *ConsumerData, value []byte, classes *Symbols) error {
	var r consumerRecord
	if err := json.Unmarshal(value, &r); err != nil {
		return err
	}
	c.Generation, c.Project, c.User, c.Type = r.Generation, r.Project, r.User, r.Type
	c.Created, c.Updated = r.Created, r.Updated
	c.Allocations = nil
	for _, provider := range slices.Sorted(maps.Keys(r.Allocations)) {
		for name, n := range r.Allocations[provider] {
			c.Allocations = append(c.Allocations, Allocation{provider, classes.intern(name), n})
		}
	}
	slices.SortStableFunc(c.Allocations, func(a, b Allocation) int {
		return cmp.Or(cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Class, b.Class))
	})
	return nil
}
