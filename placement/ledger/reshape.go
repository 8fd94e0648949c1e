package ledger

// Reshaped is the new inventories of a provider.
type Reshaped struct {
	Provider    string // UUID
	Generation  int64  // of the provider
	Inventories []InventorySpec
}

func malformed(reason string) error { return invalid("malformed reshaper data: %s", reason) }

// Reshape changes inventories and allocations together or not at all. While allocations move, the providers have both
// old and new inventories. rules.Refuse is ignored.
func (t *Tx) Reshape(rules ClaimRules, providers []Reshaped, claims []ClaimRequest) error {
	for _, r := range providers {
		p := t.providers.get(r.Provider)
		if p == nil {
			e := invalid("Resource provider %s in inventories not found: %v", r.Provider, noProvider(r.Provider))
			e.Code = CodeProviderNotFound
			return e
		}
		if r.Generation != p.Generation {
			const text = "resource provider generation conflict for provider %s: actual: %d, given: %d"
			return conflict(CodeConcurrentUpdate, text, r.Provider, p.Generation, r.Generation)
		}
	}
	rules.Refuse = malformed
	c, err := t.open(rules, claims)
	if err != nil {
		return err
	}
	final := make([][]Inventory, len(providers))
	for i, r := range providers {
		if final[i], err = t.resolve(r.Inventories); err != nil {
			return malformed(err.Error())
		}
		if len(final[i]) > 0 {
			p := t.providers.get(r.Provider)
			t.providers.setInventories(p, union(p.Inventories, final[i]))
		}
	}
	if err := c.settle(); err != nil {
		return err
	}
	for i, r := range providers {
		p := t.providers.get(r.Provider)
		if err := t.keepsUsed(p, final[i]); err != nil {
			return conflict(CodeInventoryInUse, "update conflict: %v", err)
		}
		t.providers.setInventories(p, final[i])
	}
	return nil
}

// union returns the new inventories, plus the old ones of other classes.
func union(old, fresh []Inventory) []Inventory {
	list := append([]Inventory(nil), fresh...)
	for _, i := range old {
		p := ProviderData{Inventories: fresh}
		if p.Inventory(i.Class) == nil {
			list = append(list, i)
		}
	}
	return list
}
