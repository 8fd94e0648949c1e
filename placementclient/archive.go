package placementclient

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"croft"
	"croft/placement/transfer"
)

// Archive reads and writes the whole state of a Placement through its API, croft's or OpenStack's. Read returns the
// state at one moment: it repeats reads of objects that changed concurrently until a round finds no change. An Archive
// is for one goroutine.
type Archive struct {
	Client *Client
}

var _ transfer.Target = (*Archive)(nil)

// maxRounds bounds how often Read repeats its reads.
const maxRounds = 20

// Read implements transfer.Source. If a round finds no change, everything read was true when the round started.
func (a *Archive) Read(ctx context.Context, progress transfer.Progress) (*transfer.State, error) {
	r := &archiveReader{client: a.Client, progress: progress, hosts: map[croft.HostID]*hostReading{},
		consumers: map[croft.InstanceID]transfer.Consumer{}}
	for range maxRounds {
		changed, err := r.pass(ctx)
		if err != nil {
			return nil, err
		}
		if !changed {
			return r.state(), nil
		}
	}
	return nil, croft.Errorf(croft.Conflict, "placement at %s changes faster than it can be read; stop what claims "+
		"from it for that time", a.Client.conn.at())
}

// archiveReader is one call of Archive.Read.
type archiveReader struct {
	client   *Client
	progress transfer.Progress

	classes   []croft.ResourceClass
	traits    []croft.Trait
	rows      []providerRow
	hosts     map[croft.HostID]*hostReading
	consumers map[croft.InstanceID]transfer.Consumer
}

// providerRow is a provider in the list of all providers.
type providerRow struct {
	ID         croft.HostID `json:"uuid"`
	Name       string       `json:"name"`
	Parent     croft.HostID `json:"parent_provider_uuid"`
	Generation int64        `json:"generation"`
}

// hostReading is the data read about a provider.
type hostReading struct {
	row      providerRow
	provider transfer.Provider
	claims   claimsBody
}

// claimsBody holds the allocations of a provider.
type claimsBody struct {
	Generation  int64                                `json:"resource_provider_generation"`
	Allocations map[croft.InstanceID]consumerReading `json:"allocations"`
}

type consumerReading struct {
	Generation int64           `json:"consumer_generation"`
	Resources  croft.Resources `json:"resources"`
}

func (c *claimsBody) equal(d *claimsBody) bool {
	same := func(x, y consumerReading) bool {
		return x.Generation == y.Generation && maps.Equal(x.Resources, y.Resources)
	}
	return c.Generation == d.Generation && maps.EqualFunc(c.Allocations, d.Allocations, same)
}

// pass reads what changed since the last round, and reports whether anything did.
func (r *archiveReader) pass(ctx context.Context) (bool, error) {
	changed, err := r.names(ctx)
	if err != nil {
		return false, err
	}
	var list struct {
		Providers []providerRow `json:"resource_providers"`
	}
	if err := r.client.conn.call(ctx, http.MethodGet, "/resource_providers", nil, &list); err != nil {
		return false, err
	}
	changed = changed || !slices.Equal(list.Providers, r.rows)
	r.rows = list.Providers
	hosts := make([]*hostReading, len(r.rows))
	err = each(ctx, "reading providers", r.progress, len(r.rows), func(ctx context.Context, i int) (err error) {
		hosts[i], err = r.client.readHost(ctx, r.rows[i], r.hosts[r.rows[i].ID])
		return err
	})
	if err != nil {
		return false, err
	}
	before := r.hosts
	r.hosts = make(map[croft.HostID]*hostReading, len(hosts))
	for i, h := range hosts {
		if h == nil || before[r.rows[i].ID] != h {
			changed = true
		}
		if h != nil {
			r.hosts[h.row.ID] = h
		}
	}
	also, err := r.readConsumers(ctx)
	return changed || also, err
}

// names reads the names of classes and traits.
func (r *archiveReader) names(ctx context.Context) (changed bool, err error) {
	var classes struct {
		Classes []struct {
			Name croft.ResourceClass `json:"name"`
		} `json:"resource_classes"`
	}
	if err := r.client.conn.call(ctx, http.MethodGet, "/resource_classes", nil, &classes); err != nil {
		return false, err
	}
	var traits traitsBody
	if err := r.client.conn.call(ctx, http.MethodGet, "/traits", nil, &traits); err != nil {
		return false, err
	}
	var names []croft.ResourceClass
	for _, c := range classes.Classes {
		names = append(names, c.Name)
	}
	changed = !slices.Equal(names, r.classes) || !slices.Equal(traits.Traits, r.traits)
	r.classes, r.traits = names, traits.Traits
	return changed, nil
}

// readHost reads a provider, unless it is unchanged since the last round. nil: the provider changed during the reads,
// or was deleted.
func (c *Client) readHost(ctx context.Context, row providerRow, before *hostReading) (*hostReading, error) {
	h := &hostReading{row: row}
	if err := c.conn.call(ctx, http.MethodGet, providerPath(row.ID, "/allocations"), nil, &h.claims); err != nil {
		return nil, absent(err)
	}
	if before != nil && before.row == row && before.claims.equal(&h.claims) {
		return before, nil
	}
	var inventories inventoriesBody
	var traits traitsBody
	var aggregates aggregatesBody
	for _, part := range []struct {
		name string
		out  any
	}{{"/inventories", &inventories}, {"/traits", &traits}, {"/aggregates", &aggregates}} {
		if err := c.conn.call(ctx, http.MethodGet, providerPath(row.ID, part.name), nil, part.out); err != nil {
			return nil, absent(err)
		}
	}
	for _, generation := range []int64{h.claims.Generation, inventories.Generation, traits.Generation,
		aggregates.Generation} {
		if generation != row.Generation {
			return nil, nil
		}
	}
	h.provider = transfer.Provider{ID: row.ID, Name: row.Name, Parent: row.Parent, Generation: row.Generation,
		Inventories: inventories.Inventories, Traits: sorted(traits.Traits), Aggregates: sorted(aggregates.Aggregates)}
	return h, nil
}

// absent ignores NotFound.
func absent(err error) error {
	if is(err, http.StatusNotFound, "") {
		return nil
	}
	return err
}

// readConsumers reads the consumers of the providers that changed since the last round, and reports whether any
// consumer changed.
func (r *archiveReader) readConsumers(ctx context.Context) (bool, error) {
	seen := map[croft.InstanceID]map[croft.HostID]croft.Resources{}
	generations := map[croft.InstanceID]int64{}
	for _, h := range r.hosts {
		for id, c := range h.claims.Allocations {
			if seen[id] == nil {
				seen[id] = map[croft.HostID]croft.Resources{}
			}
			seen[id][h.row.ID], generations[id] = c.Resources, c.Generation
		}
	}
	var stale []croft.InstanceID
	for id, has := range seen {
		c, known := r.consumers[id]
		if !known || c.Generation != generations[id] || !maps.EqualFunc(c.Allocations, has, sameResources) {
			stale = append(stale, id)
		}
	}
	gone := len(r.consumers) > len(seen)-len(stale)
	maps.DeleteFunc(r.consumers, func(id croft.InstanceID, _ transfer.Consumer) bool { return seen[id] == nil })
	var mu sync.Mutex
	err := each(ctx, "reading consumers", r.progress, len(stale), func(ctx context.Context, i int) error {
		c, err := r.client.readConsumer(ctx, stale[i])
		mu.Lock()
		defer mu.Unlock()
		if r.consumers[stale[i]] = c; len(c.Allocations) == 0 {
			delete(r.consumers, stale[i])
		}
		return err
	})
	return gone || len(stale) > 0, err
}

func sameResources(a, b croft.Resources) bool { return maps.Equal(a, b) }

func (c *Client) readConsumer(ctx context.Context, id croft.InstanceID) (transfer.Consumer, error) {
	var body allocationsBody
	if err := c.conn.call(ctx, http.MethodGet, "/allocations/"+url.PathEscape(string(id)), nil, &body); err != nil {
		return transfer.Consumer{}, err
	}
	if body.Type == unknownType {
		body.Type = ""
	}
	out := transfer.Consumer{ID: id, Project: body.Project, User: body.User, Type: body.Type,
		Allocations: make(map[croft.HostID]croft.Resources, len(body.Allocations))}
	if body.Generation != nil {
		out.Generation = *body.Generation
	}
	for host, a := range body.Allocations {
		out.Allocations[host] = a.Resources
	}
	return out, nil
}

// unknownType is the type that Placement reports for consumers without a type.
const unknownType = "unknown"

// state builds the result.
func (r *archiveReader) state() *transfer.State {
	out := &transfer.State{}
	for _, c := range r.classes {
		if strings.HasPrefix(string(c), "CUSTOM_") {
			out.Classes = append(out.Classes, c)
		} else {
			out.StandardClasses = append(out.StandardClasses, c)
		}
	}
	for _, t := range r.traits {
		if strings.HasPrefix(string(t), "CUSTOM_") {
			out.Traits = append(out.Traits, t)
		} else {
			out.StandardTraits = append(out.StandardTraits, t)
		}
	}
	for _, row := range r.rows {
		out.Providers = append(out.Providers, r.hosts[row.ID].provider)
	}
	for _, id := range slices.Sorted(maps.Keys(r.consumers)) {
		out.Consumers = append(out.Consumers, r.consumers[id])
	}
	return out
}

// each calls do n times, several calls at once, and reports progress. It stops at the first error.
func each(ctx context.Context, stage string, progress transfer.Progress, n int, do func(context.Context,
	int) error) error {
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(readers)
	var mu sync.Mutex
	done := 0
	for i := range n {
		work.Go(func() error {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("%s: %w", stage, err)
			}
			if err := do(ctx, i); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			done++
			progress(stage, done, n)
			return nil
		})
	}
	return work.Wait()
}
