package placementclient

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"croft"
	"croft/placement/transfer"
)

// Write implements transfer.Target. A provider whose final inventories are smaller than its claims has larger ones
// until the claims are written.
func (a *Archive) Write(ctx context.Context, changes *transfer.Changes, progress transfer.Progress) error {
	if err := a.Client.write(ctx, changes, progress); err != nil {
		return fmt.Errorf("import: %w; what is missing comes when it is run again", err)
	}
	return nil
}

func (c *Client) write(ctx context.Context, changes *transfer.Changes, progress transfer.Progress) error {
	if err := writeNames(ctx, c, "resource classes", "/resource_classes/", changes.Classes, progress); err != nil {
		return err
	}
	if err := writeNames(ctx, c, "traits", "/traits/", changes.Traits, progress); err != nil {
		return err
	}
	if err := c.writePlaces(ctx, changes, progress); err != nil {
		return err
	}
	final, passing := offers(changes)
	if err := c.writeOffers(ctx, "inventories", passing, progress); err != nil {
		return err
	}
	generations := map[croft.InstanceID]*int64{}
	for _, have := range changes.Have.Consumers {
		generations[have.ID] = &have.Generation
	}
	err := each(ctx, "consumers", progress, len(changes.Consumers), func(ctx context.Context, i int) error {
		return c.writeConsumer(ctx, changes.Consumers[i], generations[changes.Consumers[i].ID])
	})
	if err != nil {
		return err
	}
	return c.writeOffers(ctx, "final inventories", final, progress)
}

// writeNames creates classes or traits one by one, since the order of creation is visible.
func writeNames[T ~string](ctx context.Context, c *Client, stage, path string, names []T,
	progress transfer.Progress) error {
	for i, name := range names {
		if err := c.call(ctx, http.MethodPut, path+url.PathEscape(string(name)), nil, nil); err != nil {
			return err
		}
		progress(stage, i+1, len(names))
	}
	return nil
}

// writePlaces creates providers with name and parent, in the order of their creation.
func (c *Client) writePlaces(ctx context.Context, changes *transfer.Changes, progress transfer.Progress) error {
	have := map[croft.HostID]transfer.Provider{}
	for _, p := range changes.Have.Providers {
		have[p.ID] = p
	}
	for i, p := range changes.Providers {
		if err := c.writePlace(ctx, p, have); err != nil {
			return err
		}
		progress("providers", i+1, len(changes.Providers))
	}
	return nil
}

// placeBody is a provider's name and parent.
type placeBody struct {
	ID     croft.HostID  `json:"uuid,omitempty"`
	Name   string        `json:"name"`
	Parent *croft.HostID `json:"parent_provider_uuid"`
}

func (c *Client) writePlace(ctx context.Context, p transfer.Provider, have map[croft.HostID]transfer.Provider) error {
	body := placeBody{Name: p.Name}
	if p.Parent != "" {
		body.Parent = &p.Parent
	}
	old, there := have[p.ID]
	switch {
	case there && old.Name == p.Name && old.Parent == p.Parent:
		return nil
	case there:
		return c.call(ctx, http.MethodPut, providerPath(p.ID, ""), body, nil)
	}
	body.ID = p.ID
	err := c.call(ctx, http.MethodPost, "/resource_providers", body, nil)
	if !is(err, http.StatusConflict, "") {
		return err
	}
	var now providerRow // perhaps we made it ourselves and the answer was lost
	if again := c.call(ctx, http.MethodGet, providerPath(p.ID, ""), nil,
		&now); again != nil || now.Name != p.Name || now.Parent != p.Parent {
		return err
	}
	return nil
}

// offers returns the inventories that providers get before the claims and, if they differ from the final ones, after
// them.
func offers(changes *transfer.Changes) (final, passing []croft.Provider) {
	claimed := map[croft.HostID]bool{}
	all := &transfer.State{Providers: changes.Want.Providers, Consumers: slices.Clone(changes.Want.Consumers)}
	old := map[croft.InstanceID]transfer.Consumer{}
	for _, have := range changes.Have.Consumers {
		old[have.ID] = have
	}
	for _, consumer := range changes.Consumers {
		for host := range consumer.Allocations {
			claimed[host] = true
		}
		if have, there := old[consumer.ID]; there { // for a time there may be the old and the new
			all.Consumers = append(all.Consumers, have)
		}
	}
	interim := transfer.Interim(all)
	changed := map[croft.HostID]bool{}
	for _, p := range changes.Providers {
		changed[p.ID] = true
	}
	for _, p := range changes.Want.Providers {
		offer := croft.Provider{ID: p.ID, Name: p.Name, Inventories: p.Inventories, Traits: p.Traits,
			Aggregates: p.Aggregates}
		tight := claimed[p.ID] && interim[p.ID] != nil
		if tight {
			final = append(final, offer)
			offer.Inventories = maps.Clone(p.Inventories)
			maps.Copy(offer.Inventories, interim[p.ID])
		}
		if tight || changed[p.ID] {
			passing = append(passing, offer)
		}
	}
	return final, passing
}

// writeOffers writes inventories, traits and aggregates.
func (c *Client) writeOffers(ctx context.Context, stage string, list []croft.Provider,
	progress transfer.Progress) error {
	return each(ctx, stage, progress, len(list), func(ctx context.Context, i int) error {
		for _, step := range []func(context.Context, croft.Provider) error{c.ensureInventories, c.ensureTraits,
			c.ensureAggregates} {
			if err := c.again(ctx, func() error { return step(ctx, list[i]) }); err != nil {
				return err
			}
		}
		return nil
	})
}

// writeConsumer writes a consumer's claim. generation is the consumer's; nil: it has no claims yet. A consumer without
// a type is written with a microversion without types.
func (c *Client) writeConsumer(ctx context.Context, x transfer.Consumer, generation *int64) error {
	body := allocationsBody{Allocations: make(map[croft.HostID]resourcesBody, len(x.Allocations)),
		Project: x.Project, User: x.User, Type: x.Type, Generation: generation}
	for host, r := range x.Allocations {
		body.Allocations[host] = resourcesBody{r}
	}
	path := "/allocations/" + url.PathEscape(string(x.ID))
	put := func() error {
		if x.Type == "" {
			return c.callAt(ctx, typedMinor-1, http.MethodPut, path, body, nil)
		}
		return c.call(ctx, http.MethodPut, path, body, nil)
	}
	return c.again(ctx, func() error {
		err := put()
		if !is(err, http.StatusConflict, concurrentUpdate) {
			return err
		}
		// A rival changed a provider, or the answer to an earlier attempt was lost.
		now, getErr := c.readConsumer(ctx, x.ID)
		if getErr == nil && maps.EqualFunc(now.Allocations, x.Allocations,
			sameResources) && now.Project == x.Project && now.User == x.User {
			return nil
		}
		return errors.Join(err, getErr)
	})
}
