package direct

import (
	"context"
	"sync/atomic"

	"croft"
	"croft/etcdstore"
	"croft/placement"
	"croft/schedule"
	"croft/tenant/objects"
)

// Scheduling configures the scheduler of a long-lived process. The zero value fits a single command.
type Scheduling struct {
	Hosts schedule.Registry // nil: read from etcd
	Own   *Own              // nil: record, claim and order are three steps

	Clusters *Clusters // nil: the zero value
}

// Own is croft's own Placement, if it runs in this process on the etcd of the cloud and has read its state into memory.
// Candidates are then searched in memory, and requests are written in one step.
type Own struct{ now atomic.Pointer[own] }

type own struct {
	server *placement.Server
	placer *etcdstore.Placer
}

// Use makes the server known. Its Store must be the Placement of the store.
func (o *Own) Use(store *etcdstore.Store, server *placement.Server) {
	o.now.Store(&own{server, store.NewPlacer(server.Ledger())})
}

// config configures a scheduler.
func (how Scheduling) config(store *etcdstore.Store, claims Claims) schedule.Config {
	c := schedule.Config{Partition: store.Partition(), Records: store.Instances, Holds: store.Instances,
		View: store.Instances, Registry: store.Registry, Groups: store.Groups, Claims: claims,
		Aggregates: store.Aggregates, Distances: store.Distances, Properties: objects.OfHosts{Store: store.Objects},
		Crush: store.Policies}
	if how.Hosts != nil {
		c.Registry = how.Hosts
	}
	if how.Own != nil {
		c.Claims = ownClaims{claims, how.Own}
		c.Placer = func() schedule.Placer {
			if now := how.Own.now.Load(); now != nil {
				return now.placer
			}
			return nil
		}
	}
	return c
}

// ownClaims implements schedule.Claims for a cloud whose Placement may run in this process.
type ownClaims struct {
	Claims
	own *Own
}

// Candidates implements schedule.Claims.
func (c ownClaims) Candidates(ctx context.Context, query string, limit int) ([]croft.Candidate, error) {
	if now := c.own.now.Load(); now != nil {
		return now.server.Candidates(ctx, query, limit)
	}
	return c.Claims.Candidates(ctx, query, limit)
}
