package direct

import (
	"context"
	"time"

	"croft"
	"croft/cloud"
	"croft/control/actions"
	"croft/etcdstore"
	"croft/schedule/topology"
)

// aggregates implements cloud.Aggregates.
type aggregates struct {
	cloud.Aggregates
	store *etcdstore.Store
}

// Create implements cloud.Aggregates. It refuses the name of a site, because a request with this name means the
// location.
func (a aggregates) Create(ctx context.Context, wanted croft.Aggregate) (croft.Aggregate, error) {
	if err := wanted.Check(); err != nil {
		return wanted, err
	}
	all, err := a.store.Registry.Hosts(ctx)
	if err != nil {
		return wanted, err
	}
	for _, h := range all {
		if path, err := topology.Of(h); err == nil && path.At(croft.LevelSite).String() == wanted.Name {
			return wanted, croft.Errorf(croft.Conflict,
				"%s is a site: requests may name it already; choose another name for the aggregate", wanted.Name)
		}
	}
	return a.Aggregates.Create(ctx, wanted)
}

// recordedAggregates records changes of aggregates.
type recordedAggregates struct {
	cloud.Aggregates
	journal *journal
}

func (a recordedAggregates) tell(ctx context.Context, began time.Time, operation, name string, err error) {
	a.journal.tell(ctx, began, operation, "", actions.Object{Kind: actions.Aggregate, Name: name}, err)
}

// Create implements cloud.Aggregates.
func (a recordedAggregates) Create(ctx context.Context, wanted croft.Aggregate) (croft.Aggregate, error) {
	began := time.Now()
	made, err := a.Aggregates.Create(ctx, wanted)
	a.tell(ctx, began, "createAggregate", wanted.Name, err)
	return made, err
}

// Change implements cloud.Aggregates.
func (a recordedAggregates) Change(ctx context.Context, name string, c croft.AggregateChange) (croft.Aggregate, error) {
	began := time.Now()
	changed, err := a.Aggregates.Change(ctx, name, c)
	a.tell(ctx, began, "changeAggregate", name, err)
	return changed, err
}

// Remove implements cloud.Aggregates.
func (a recordedAggregates) Remove(ctx context.Context, name string, generation *int64) error {
	began := time.Now()
	err := a.Aggregates.Remove(ctx, name, generation)
	a.tell(ctx, began, "removeAggregate", name, err)
	return err
}
