package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"croft"
	"croft/placement/transfer"
)

// maxBatch bounds the bytes of one transaction, below etcd's limit of 1.5 MiB.
const maxBatch = 512 << 10

// Write implements transfer.Target. New providers get their inventories last, so that no other client can claim
// resources that belong to imported consumers.
func (a *Archive) Write(ctx context.Context, changes *transfer.Changes, progress transfer.Progress) error {
	r := &restore{archive: a, changes: changes, now: time.Now().Unix(), generations: map[string]int64{}}
	for _, p := range changes.Want.Providers {
		r.generations[string(p.ID)] = p.Generation
	}
	stages := []stage{
		{"resource classes", true, r.names(KindClass, typed[string](changes.Classes))},
		{"traits", true, r.names(KindTrait, typed[string](changes.Traits))},
		{"providers", false, r.providers(true)},
		{"consumers", false, r.consumers()},
		{"inventories", false, r.providers(false)},
	}
	limit := a.Store.Limit()
	for _, s := range stages {
		for _, u := range s.units {
			if len(u.txn.Then) > limit {
				const text = "import: %s needs %d writes in one transaction and etcd takes %d here; " +
					"let etcd take more (--max-txn-ops), or have it claim from fewer providers"
				return croft.Errorf(croft.Invalid, text, u.what, len(u.txn.Then), limit)
			}
		}
	}
	for _, s := range stages {
		if err := r.commitAll(ctx, s, limit, progress); err != nil {
			return err
		}
	}
	return nil
}

// stage is a list of units that must be written before the next stage starts.
type stage struct {
	name  string
	each  bool // one transaction per unit, since the order of creation is visible
	units []unit
}

// unit is a set of writes that must share a transaction.
type unit struct {
	what string
	txn  Txn // without comparisons; commit adds them
}

// restore is one call of Archive.Write.
type restore struct {
	archive     *Archive
	changes     *transfer.Changes
	now         int64
	generations map[string]int64 // of providers after the import
}

func (r *restore) names(kind Kind, names []string) (out []unit) {
	for _, name := range names {
		u := unit{what: string(kind) + " " + name}
		u.txn.put(kind, name, encode(nameRecord{r.now}))
		out = append(out, u)
	}
	return out
}

// providers returns the writes of all providers or, if fresh is set, of only the new ones, without inventories.
func (r *restore) providers(fresh bool) (out []unit) {
	for i, p := range r.changes.Providers {
		switch {
		case !fresh:
			out = append(out, r.provider(p, i))
		case r.archive.read.providers[string(p.ID)] == nil:
			p.Inventories = nil
			out = append(out, r.provider(p, i))
		}
	}
	return out
}

// provider writes a provider with its generation and name. index is its position among all providers.
func (r *restore) provider(p transfer.Provider, index int) unit {
	record := providerRecord{Name: p.Name, Parent: string(p.Parent), Traits: typed[string](p.Traits),
		Aggregates: p.Aggregates, Created: r.now, Index: index, Inventories: map[string]inventoryRecord{}}
	for class, i := range p.Inventories {
		record.Inventories[string(class)] = inventoryRecord{i.Total, i.Reserved, i.MinUnit, i.MaxUnit, i.StepSize,
			i.AllocationRatio}
	}
	uuid := string(p.ID)
	u := unit{what: "provider " + uuid}
	if have := r.archive.read.providers[uuid]; have != nil {
		record.Created, record.Updated, record.Index = have.Created, r.now, have.order.index
		if have.Name != p.Name && !r.named(have.Name) {
			u.txn.delete(KindName, have.Name)
		}
	}
	u.txn.put(KindName, p.Name, []byte(uuid))
	u.txn.put(KindProvider, uuid, encode(record))
	u.txn.put(KindGeneration, uuid, encodeGeneration(p.Generation))
	return u
}

// named reports whether a provider has a name after the import.
func (r *restore) named(name string) bool {
	return slices.ContainsFunc(r.changes.Want.Providers, func(p transfer.Provider) bool { return p.Name == name })
}

// consumers writes consumers together with the generations of their providers, so that concurrent claims conflict.
func (r *restore) consumers() []unit {
	out := make([]unit, len(r.changes.Consumers))
	for i, c := range r.changes.Consumers {
		record := consumerRecord{Generation: c.Generation, Project: c.Project, User: c.User, Type: c.Type,
			Created: r.now, Allocations: make(map[string]map[string]int64, len(c.Allocations))}
		u := unit{what: "consumer " + string(c.ID)}
		for host, resources := range c.Allocations {
			amounts := make(map[string]int64, len(resources))
			for class, n := range resources {
				amounts[string(class)] = n
			}
			record.Allocations[string(host)] = amounts
			u.txn.put(KindGeneration, string(host), encodeGeneration(r.generations[string(host)]))
		}
		if have := r.archive.read.consumers[string(c.ID)]; have != nil {
			record.Created, record.Updated = have.Created, r.now
		}
		u.txn.put(KindConsumer, string(c.ID), encode(record))
		out[i] = u
	}
	return out
}

// commitAll writes a stage in as few transactions as possible.
func (r *restore) commitAll(ctx context.Context, s stage, limit int, progress transfer.Progress) error {
	batch, size := map[Key]Write{}, 0
	for i, u := range s.units {
		for _, w := range u.txn.Then {
			batch[w.Key] = w
			size += len(w.Value)
		}
		next := limit // writes of the next unit; limit if the batch ends here
		if i+1 < len(s.units) && !s.each && size < maxBatch {
			next = len(s.units[i+1].txn.Then)
		}
		if len(batch)+next <= limit {
			continue
		}
		if err := r.commit(ctx, batch); err != nil {
			return err
		}
		progress(s.name, i+1, len(s.units))
		batch, size = map[Key]Write{}, 0
	}
	return nil
}

func (r *restore) commit(ctx context.Context, batch map[Key]Write) error {
	var t Txn
	for key, w := range batch {
		t.If = append(t.If, Compare{Key: key, Revision: r.archive.modified[key]})
		t.Then = append(t.Then, w)
	}
	slices.SortFunc(t.Then, func(a, b Write) int {
		return cmp.Or(strings.Compare(string(a.Kind), string(b.Kind)), strings.Compare(a.ID, b.ID))
	})
	out, err := r.archive.Store.Commit(ctx, t)
	switch {
	case errors.Is(err, ErrTooLarge):
		return croft.Errorf(croft.Invalid, "import: %w: let etcd take more (--max-request-bytes)", err)
	case err != nil:
		return fmt.Errorf("import: %w; what is missing comes when it is run again", err)
	case !out.Done:
		return croft.Errorf(croft.Conflict,
			"import: another program changed the same records meanwhile; stop that program and run the import again")
	}
	for key, w := range batch {
		if r.archive.modified[key] = out.Revision; w.Delete {
			delete(r.archive.modified, key)
		}
	}
	return nil
}
