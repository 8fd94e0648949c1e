package ledger

import (
	"slices"
	"strconv"
	"strings"
)

// Claim is what one consumer is to have been granted.
type Claim struct {
	Consumer      string // UUID
	Project, User string
	Type          string // consumer type
	Generation    *int64 // of the consumer; nil: it does not exist yet
	Demands       []Demand
}

// Demand is the part of a claim about one provider and class.
type Demand struct {
	Provider string // UUID
	NamedAmount
}

// ClaimRules says how claims are decided.
type ClaimRules struct {
	Generations bool               // the consumers' generations are compared
	Types       bool               // the consumers' types are stored
	Refuse      func(string) error // words the refusal of a class that does not exist
}

// Claim replaces the allocations of all consumers, or of none.
func (t *Tx) Claim(rules ClaimRules, claims ...Claim) error {
	consumers, err := t.openClaims(rules, claims)
	if err != nil {
		return err
	}
	return t.settle(rules.Refuse, claims, consumers)
}

// openClaims checks the consumers and providers of claims.
func (t *Tx) openClaims(rules ClaimRules, claims []Claim) ([]*consumerView, error) {
	consumers := make([]*consumerView, len(claims))
	for i, c := range claims {
		var err error
		if consumers[i], err = t.openClaim(rules, c); err != nil {
			return nil, err
		}
	}
	for _, c := range claims {
		for _, d := range c.Demands {
			if t.provider(d.Provider) == nil {
				return nil, invalid("Allocation for resource provider '%s' that does not exist.", d.Provider)
			}
		}
	}
	return consumers, nil
}

// openClaim finds or creates the consumer of a claim, and updates all but its allocations.
func (t *Tx) openClaim(rules ClaimRules, c Claim) (*consumerView, error) {
	view := t.consumerView(c.Consumer)
	if rules.Generations {
		const text = "consumer generation conflict - expected %s but got %s"
		given := "None"
		if c.Generation != nil {
			given = strconv.FormatInt(*c.Generation, 10)
		}
		have := strconv.FormatInt(view.Generation, 10)
		switch {
		case view.exists && given != have:
			return nil, conflict(CodeConcurrentUpdate, text, have, given)
		case !view.exists && c.Generation != nil:
			return nil, conflict(CodeConcurrentUpdate, text, "null", given)
		}
	}
	if !view.exists {
		view.ConsumerData = ConsumerData{UUID: c.Consumer, Created: t.now, modified: view.modified}
	}
	view.Project, view.User, view.exists = c.Project, c.User, true
	if rules.Types {
		view.Type = c.Type
	}
	view.Updated, view.write = t.now, true
	return view, nil
}

// settle frees what the consumers have, checks their demands against what is left, and grants them.
func (t *Tx) settle(refuse func(string) error, claims []Claim, consumers []*consumerView) error {
	touched := map[string]bool{} // providers whose generations are counted up
	var returned []ID            // classes of which consumers return all
	for i, c := range claims {
		if len(c.Demands) == 0 {
			for _, a := range consumers[i].Allocations {
				touched[a.Provider] = true
				returned = append(returned, a.Class)
			}
		}
		t.allocate(consumers[i], nil)
	}
	if err := t.check(refuse, claims, returned); err != nil {
		return err
	}
	for i, c := range claims {
		var list []Allocation
		for _, d := range c.Demands {
			list = append(list, Allocation{d.Provider, t.class(d.Class).id, d.N})
			touched[d.Provider] = true
		}
		t.allocate(consumers[i], list)
		consumers[i].Generation++
		consumers[i].exists = len(list) > 0
	}
	for provider := range touched {
		t.view(provider).bump()
	}
	return nil
}

// check refuses claims that exceed what the providers have left.
func (t *Tx) check(refuse func(string) error, claims []Claim, returned []ID) error {
	classes, err := t.claimedClasses(refuse, claims, returned)
	if err != nil {
		return err
	}
	if err := t.checkInventories(classes, claims); err != nil {
		return err
	}
	type key struct {
		provider string
		class    ID
	}
	sums := map[key]int64{}
	for _, c := range claims {
		for _, d := range c.Demands {
			p, class := t.provider(d.Provider), t.class(d.Class)
			inv := p.Inventory(class.id)
			if inv == nil {
				return noInventory(d.Class, d.Provider)
			}
			const text = "Unable to create allocation for '%s' on resource provider '%s'. The requested amount would %s."
			if d.N < inv.MinUnit || d.N > inv.MaxUnit || d.N%inv.StepSize != 0 {
				return unallocatable(text, d.Class, d.Provider, "violate inventory constraints")
			}
			sums[key{d.Provider, class.id}] += d.N
			total := p.Used(class.id) + sums[key{d.Provider, class.id}]
			if float64(total) > float64(inv.Total-inv.Reserved)*inv.Ratio {
				return unallocatable(text, d.Class, d.Provider, "exceed the capacity")
			}
		}
	}
	return nil
}

// unallocatable is a conflict that trying again does not solve.
func unallocatable(format string, args ...any) error {
	return conflict("", "Unable to allocate inventory: "+format, args...)
}

func noInventory(class, provider string) error {
	return unallocatable("Inventory for '%s' on resource provider '%s' invalid.", class, provider)
}

// claimedClasses returns the classes that are claimed or returned, by ID.
func (t *Tx) claimedClasses(refuse func(string) error, claims []Claim, returned []ID) ([]ID, error) {
	ids := slices.Clone(returned)
	for _, c := range claims {
		for _, d := range c.Demands {
			class := t.class(d.Class)
			if class == nil {
				return nil, refuse("No such resource class " + d.Class + ".")
			}
			ids = append(ids, class.id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// checkInventories refuses claims on providers that have none of the classes.
func (t *Tx) checkInventories(classes []ID, claims []Claim) error {
	var lacking []string
	for _, c := range claims {
		for _, d := range c.Demands {
			p := t.provider(d.Provider)
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
		names = append(names, t.ClassName(class))
	}
	return noInventory(strings.Join(names, ", "), strings.Join(lacking, ", "))
}

// Release returns all allocations of a consumer.
func (t *Tx) Release(consumer string) error {
	c := t.consumer(consumer)
	if c == nil || len(c.Allocations) == 0 {
		return notFound("No allocations for consumer '%s'", consumer)
	}
	t.allocate(c, nil)
	c.exists = false
	return nil
}
