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

// Write implements transfer.Target. A provider whose final inventories are smaller than its claims temporarily gets
// larger ones, until the claims are written.
func (a *Archive) Write(ctx context.Context, changes *transfer.Changes, progress transfer.Progress) error {
	r := &restore{a.Client, changes, progress}
	if err := r.write(ctx); err != nil {
		return fmt.Errorf("import: %w; what is missing comes when it is run again", err)
	}
	return nil
}

// restore is one call of Archive.Write.
type restore struct {
	client   *Client
	changes  *transfer.Changes
	progress transfer.Progress
}

func (r *restore) write(ctx context.Context) error {
	changes := r.changes
	if err := writeNames(ctx, r, "resource classes", "/resource_classes/", changes.Classes); err != nil {
		return err
	}
	if err := writeNames(ctx, r, "traits", "/traits/", changes.Traits); err != nil {
		return err
	}
	if err := r.tree(ctx); err != nil {
		return err
	}
	final, interim := describe(changes)
	if err := r.describe(ctx, "inventories", interim); err != nil {
		return err
	}
	generations := map[croft.InstanceID]*int64{}
	for _, have := range changes.Have.Consumers {
		generations[have.ID] = &have.Generation
	}
	err := each(ctx, "consumers", r.progress, len(changes.Consumers), func(ctx context.Context, i int) error {
		return r.consumer(ctx, changes.Consumers[i], generations[changes.Consumers[i].ID])
	})
	if err != nil {
		return err
	}
	return r.describe(ctx, "final inventories", final)
}

// writeNames creates classes or traits one by one, because the order of creation is visible.
func writeNames[T ~string](ctx context.Context, r *restore, stage, path string, names []T) error {
	for i, name := range names {
		if err := r.client.conn.call(ctx, http.MethodPut, path+url.PathEscape(string(name)), nil, nil); err != nil {
			return err
		}
		r.progress(stage, i+1, len(names))
	}
	return nil
}

// tree creates providers with name and parent, in the order of their creation.
func (r *restore) tree(ctx context.Context) error {
	have := map[croft.HostID]transfer.Provider{}
	for _, p := range r.changes.Have.Providers {
		have[p.ID] = p
	}
	for i, p := range r.changes.Providers {
		if err := r.provider(ctx, p, have); err != nil {
			return err
		}
		r.progress("providers", i+1, len(r.changes.Providers))
	}
	return nil
}

// treeBody holds a provider's name and parent.
type treeBody struct {
	ID     croft.HostID  `json:"uuid,omitempty"`
	Name   string        `json:"name"`
	Parent *croft.HostID `json:"parent_provider_uuid"`
}

func (r *restore) provider(ctx context.Context, p transfer.Provider, have map[croft.HostID]transfer.Provider) error {
	conn, body := r.client.conn, treeBody{Name: p.Name}
	if p.Parent != "" {
		body.Parent = &p.Parent
	}
	old, there := have[p.ID]
	switch {
	case there && old.Name == p.Name && old.Parent == p.Parent:
		return nil
	case there:
		return conn.call(ctx, http.MethodPut, providerPath(p.ID, ""), body, nil)
	}
	body.ID = p.ID
	err := conn.call(ctx, http.MethodPost, "/resource_providers", body, nil)
	if !is(err, http.StatusConflict, "") {
		return err
	}
	var now providerRow // perhaps created by us, with the answer lost
	again := conn.call(ctx, http.MethodGet, providerPath(p.ID, ""), nil, &now)
	if again == nil && now.Name == p.Name && now.Parent == p.Parent {
		return nil
	}
	return err
}

// describe returns the inventories to write before the claims (interim) and, if they differ, those to write after the
// claims (final).
func describe(changes *transfer.Changes) (final, interim []croft.Provider) {
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
		if have, there := old[consumer.ID]; there { // old and new claims may coexist for a time
			all.Consumers = append(all.Consumers, have)
		}
	}
	needed := transfer.Interim(all)
	changed := map[croft.HostID]bool{}
	for _, p := range changes.Providers {
		changed[p.ID] = true
	}
	for _, p := range changes.Want.Providers {
		provider := croft.Provider{ID: p.ID, Name: p.Name, Inventories: p.Inventories, Traits: p.Traits,
			Aggregates: p.Aggregates}
		tight := claimed[p.ID] && needed[p.ID] != nil
		if tight {
			final = append(final, provider)
			provider.Inventories = maps.Clone(p.Inventories)
			maps.Copy(provider.Inventories, needed[p.ID])
		}
		if tight || changed[p.ID] {
			interim = append(interim, provider)
		}
	}
	return final, interim
}

// describe writes inventories, traits and aggregates.
func (r *restore) describe(ctx context.Context, stage string, list []croft.Provider) error {
	c := r.client
	return each(ctx, stage, r.progress, len(list), func(ctx context.Context, i int) error {
		for _, step := range []func(context.Context, croft.Provider) error{c.ensureInventories, c.ensureTraits,
			c.ensureAggregates} {
			if err := c.conn.again(ctx, func() error { return step(ctx, list[i]) }); err != nil {
				return err
			}
		}
		return nil
	})
}

// consumer writes a consumer's claim. generation is the consumer's; nil: it has no claims yet. A consumer without a
// type is written with a microversion that has no types.
func (r *restore) consumer(ctx context.Context, x transfer.Consumer, generation *int64) error {
	body := allocationsBody{Allocations: make(map[croft.HostID]resourcesBody, len(x.Allocations)),
		Project: x.Project, User: x.User, Type: x.Type, Generation: generation}
	for host, r := range x.Allocations {
		body.Allocations[host] = resourcesBody{r}
	}
	conn, path := r.client.conn, "/allocations/"+url.PathEscape(string(x.ID))
	put := func() error {
		if x.Type == "" {
			return conn.callAt(ctx, typedMinor-1, http.MethodPut, path, body, nil)
		}
		return conn.call(ctx, http.MethodPut, path, body, nil)
	}
	return conn.again(ctx, func() error {
		err := put()
		if !is(err, http.StatusConflict, concurrentUpdate) {
			return err
		}
		// Another client changed a provider, or the answer to an earlier attempt was lost.
		now, getErr := r.client.readConsumer(ctx, x.ID)
		if getErr == nil && maps.EqualFunc(now.Allocations, x.Allocations, sameResources) &&
			now.Project == x.Project && now.User == x.User {
			return nil
		}
		return errors.Join(err, getErr)
	})
}
