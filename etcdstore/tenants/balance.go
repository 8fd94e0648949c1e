package tenants

import (
	"context"
	"maps"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/internal/kv"
	"croft/tenant"
)

// Balance charges projects for records that only one process writes. It knows the charges of all these records. So a
// transaction that writes many of them needs one entry for each project whose charge changes, and compares no counters.
type Balance struct {
	projects *Projects
	charged  map[string]Charge // by key of the record
	chains   map[croft.Project]*chain
}

// NewBalance makes a Balance without records.
func NewBalance(p *Projects) *Balance {
	return &Balance{p, map[string]Charge{}, map[croft.Project]*chain{}}
}

// Written records the charges of records that are now stored, by their keys; a charge without a project stands for a
// record that costs nothing or was removed.
func (b *Balance) Written(records map[string]Charge) {
	for key, c := range records {
		if c.Project == "" {
			delete(b.charged, key)
		} else {
			b.charged[key] = c
		}
	}
}

// Stale records that the conditions of a charge were not met.
func (b *Balance) Stale() { clear(b.chains) }

// Touched lists the projects whose charge changes if a record is stored with the charge now.
func (b *Balance) Touched(key string, now Charge) (names []croft.Project) {
	before := b.charged[key]
	if before.Project == now.Project && maps.Equal(before.Amounts, now.Amounts) {
		return nil
	}
	for _, name := range []croft.Project{before.Project, now.Project} {
		if name != "" {
			names = append(names, name)
		}
	}
	return slices.Compact(names)
}

// Charge returns the part of a transaction that charges projects for the records that it writes. The ID must differ
// from the IDs of all other transactions that are done.
func (b *Balance) Charge(ctx context.Context, id string, records map[string]Charge) (compares []clientv3.Cmp,
	ops []clientv3.Op, err error) {
	more := map[croft.Project]tenant.Amounts{}
	for key, now := range records {
		if before := b.charged[key]; before.Project != "" {
			more[before.Project] = more[before.Project].Minus(before.Amounts)
		}
		if now.Project != "" {
			more[now.Project] = more[now.Project].Plus(now.Amounts)
		}
	}
	k := b.projects.keys()
	for _, name := range slices.Sorted(maps.Keys(more)) {
		change := more[name]
		if len(change) == 0 {
			continue
		}
		entry, back := k.entriesOf(name)+id, tenant.Amounts{}.Minus(change)
		if !slices.ContainsFunc(slices.Collect(maps.Values(change)), func(n int64) bool { return n > 0 }) {
			ops = append(ops, k.repay(name, entry+"/repaid", back))
			continue
		}
		c := b.chains[name]
		if c == nil {
			if c, err = b.projects.readChain(ctx, name); err != nil {
				return nil, nil, err
			}
			b.chains[name] = c
		}
		compares = append(compares, k.counted(c)...)
		ops = append(ops, clientv3.OpPut(entry+"/charged", kv.Encode(back)))
	}
	return compares, ops, nil
}

// counted returns the conditions under which entries of the first project of a chain count for the whole chain: it has
// the same ancestors, whatever their limits are now, and all of them have counters.
func (k Keys) counted(c *chain) (all []clientv3.Cmp) {
	for _, l := range c.links {
		// Existence is enough: the identity of the project is compared.
		all = append(all, kv.Created(k.project(l.name), l.created), kv.Exists(k.used(l.name)))
	}
	return all
}
