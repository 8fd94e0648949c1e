package direct

import (
	"context"

	"croft"
	"croft/control/cloud"
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
