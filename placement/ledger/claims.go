package ledger

import (
	"slices"
	"strconv"
	"strings"
)

// ClaimRequest is the wanted claim of one consumer.
type ClaimRequest struct {
	Consumer      string // UUID
	Project, User string
	Type          string // consumer type
	Generation    *int64 // of the consumer; nil: it does not exist yet
	Demands       []Demand
}

// Demand is the part of a claim on one provider and class.
type Demand struct {
	Provider string // UUID
	NamedAmount
}

// ClaimRules are the checks that depend on the microversion.
type ClaimRules struct {
	Generations bool               // compare the consumers' generations
	Types       bool               // store the consumers' types
	Increases   bool               // check the capacity only of providers whose use increases
	Refuse      func(string) error // words the refusal of an unknown class
}

// Claim replaces the allocations of all the consumers, or of none of them.
func (t *Tx) Claim(rules ClaimRules, claims ...ClaimRequest) error {
	c, err := t.open(rules, claims)
	if err != nil {
		return err
	}
	return c.settle()
}

// ConsumerVersion returns the version of a consumer, as ConsumerData.Version; 0: it does not exist, or was changed by
// an earlier request of the same transaction of the store.
func (t *Tx) ConsumerVersion(consumer string) int64 { return t.consumers.version(consumer) }

// Release deletes all allocations of a consumer.
func (t *Tx) Release(consumer string) error {
	c := t.consumers.view(consumer)
	if len(c.Allocations) == 0 {
		return notFound("No allocations for consumer '%s'", consumer)
	}
	t.allocate(c, nil)
	c.exists = false
	return nil
}

// claiming decides several claims, which are granted together or not at all.
type claiming struct {
	tx        *Tx
	rules     ClaimRules
	claims    []ClaimRequest
	consumers []*consumerView // by claim
	held      map[part]int64  // amounts that one of the consumers has, if the rules say Increases
	before    map[part]int64  // their sums, without the consumer
}

// part is the class of a provider of which a consumer has an amount.
type part struct {
	consumer, provider string // UUIDs
	class              ID
}

func (p part) sum() part { return part{provider: p.provider, class: p.class} }

// open checks the consumers and providers of claims.
func (t *Tx) open(rules ClaimRules, claims []ClaimRequest) (*claiming, error) {
	c := &claiming{tx: t, rules: rules, claims: claims, consumers: make([]*consumerView, len(claims))}
	for i, claim := range claims {
		var err error
		if c.consumers[i], err = c.consumer(claim); err != nil {
			return nil, err
		}
	}
	for _, claim := range claims {
		for _, d := range claim.Demands {
			if t.providers.get(d.Provider) == nil {
				return nil, invalid("Allocation for resource provider '%s' that does not exist.", d.Provider)
			}
		}
	}
	return c, nil
}

// consumer finds or creates the consumer of a claim and updates everything except its allocations.
func (c *claiming) consumer(claim ClaimRequest) (*consumerView, error) {
	view := c.tx.consumers.view(claim.Consumer)
	if c.rules.Generations {
		const text = "consumer generation conflict - expected %s but got %s"
		given := "None"
		if claim.Generation != nil {
			given = strconv.FormatInt(*claim.Generation, 10)
		}
		have := strconv.FormatInt(view.Generation, 10)
		switch {
		case view.exists && given != have:
			return nil, conflict(CodeConcurrentUpdate, text, have, given)
		case !view.exists && claim.Generation != nil:
			return nil, conflict(CodeConcurrentUpdate, text, "null", given)
		}
	}
	now := c.tx.basis.now
	if !view.exists {
		view.ConsumerData = ConsumerData{UUID: claim.Consumer, Created: now, modified: view.modified}
	}
	view.Project, view.User, view.exists = claim.Project, claim.User, true
	if c.rules.Types {
		view.Type = claim.Type
	}
	view.Updated, view.write = now, true
	return view, nil
}

// settle frees the present allocations of the consumers, checks the new demands against the remaining capacity, and
// grants them.
func (c *claiming) settle() error {
	c.keep()
	touched := map[string]bool{} // providers whose generation increases
	var returned []ID            // classes that consumers return completely
	for i, claim := range c.claims {
		if len(claim.Demands) == 0 {
			for _, a := range c.consumers[i].Allocations {
				touched[a.Provider] = true
				returned = append(returned, a.Class)
			}
		}
		c.tx.allocate(c.consumers[i], nil)
	}
	if err := c.check(returned); err != nil {
		return err
	}
	for i, claim := range c.claims {
		var list []Allocation
		for _, d := range claim.Demands {
			list = append(list, Allocation{d.Provider, c.tx.classes.get(d.Class).id, d.N})
			touched[d.Provider] = true
		}
		c.tx.allocate(c.consumers[i], list)
		c.consumers[i].Generation++
		c.consumers[i].exists = len(list) > 0
	}
	for provider := range touched {
		c.tx.providers.view(provider).bump()
	}
	return nil
}

// keep remembers what the consumers have, if the rules say Increases.
func (c *claiming) keep() {
	if !c.rules.Increases {
		return
	}
	c.held, c.before = map[part]int64{}, map[part]int64{}
	for i, claim := range c.claims {
		for _, a := range c.consumers[i].Allocations {
			p := part{claim.Consumer, a.Provider, a.Class}
			c.held[p] += a.N
			c.before[p.sum()] += a.N
		}
	}
}

// check refuses claims that exceed the remaining capacity of the providers.
func (c *claiming) check(returned []ID) error {
	classes, err := c.classes(returned)
	if err != nil {
		return err
	}
	if err := c.checkInventories(classes); err != nil {
		return err
	}
	sums := map[part]int64{}
	for _, claim := range c.claims {
		for _, d := range claim.Demands {
			p, class := c.tx.providers.get(d.Provider), c.tx.classes.get(d.Class)
			inv := p.Inventory(class.id)
			if inv == nil {
				return noInventory(d.Class, d.Provider)
			}
			const text = "Unable to create allocation for '%s' on resource provider '%s'. The requested amount would %s."
			of := part{claim.Consumer, d.Provider, class.id}
			held, holds := c.held[of]
			if unchanged := holds && held == d.N; !unchanged && (d.N < inv.MinUnit || d.N > inv.MaxUnit ||
				d.N%inv.StepSize != 0) {
				return unallocatable(text, d.Class, d.Provider, "violate inventory constraints")
			}
			sums[of.sum()] += d.N
			total := p.Used(class.id) + sums[of.sum()]
			if sums[of.sum()] > c.before[of.sum()] && float64(total) > float64(inv.Total-inv.Reserved)*inv.Ratio {
				return unallocatable(text, d.Class, d.Provider, "exceed the capacity")
			}
		}
	}
	return nil
}

// unallocatable is a conflict that a retry does not resolve.
func unallocatable(format string, args ...any) error {
	return conflict("", "Unable to allocate inventory: "+format, args...)
}

func noInventory(class, provider string) error {
	return unallocatable("Inventory for '%s' on resource provider '%s' invalid.", class, provider)
}

// classes returns the classes claimed or returned, by ID.
func (c *claiming) classes(returned []ID) ([]ID, error) {
	ids := slices.Clone(returned)
	for _, claim := range c.claims {
		for _, d := range claim.Demands {
			class := c.tx.classes.get(d.Class)
			if class == nil {
				return nil, c.rules.Refuse("No such resource class " + d.Class + ".")
			}
			ids = append(ids, class.id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// checkInventories refuses claims on providers without an inventory of any of the classes.
func (c *claiming) checkInventories(classes []ID) error {
	var lacking []string
	for _, claim := range c.claims {
		for _, d := range claim.Demands {
			p := c.tx.providers.get(d.Provider)
			has := slices.ContainsFunc(classes, func(class ID) bool { return p.Inventory(class) != nil })
			if !has && !slices.Contains(lacking, d.Provider) {
				lacking = append(lacking, d.Provider)
			}
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	var names []string
	for _, class := range classes {
		names = append(names, c.tx.ClassName(class))
	}
	return noInventory(strings.Join(names, ", "), strings.Join(lacking, ", "))
}
