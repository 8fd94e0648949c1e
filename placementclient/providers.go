package placementclient

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"croft"
)

func providerPath(id croft.HostID, sub string) string {
	return "/resource_providers/" + url.PathEscape(string(id)) + sub
}

type providerBody struct {
	UUID       croft.HostID `json:"uuid"`
	Name       string       `json:"name"`
	Generation int64        `json:"generation"`
	Root       croft.HostID `json:"root_provider_uuid"`
}

// EnsureProvider implements compute.Inventory. Conflict: another provider has the name, or a class without an inventory
// in p has claims.
func (c *Client) EnsureProvider(ctx context.Context, p croft.Provider) error {
	if done, err := c.ensureAtOnce(ctx, p); done {
		return err
	}
	for _, step := range []func(context.Context, croft.Provider) error{
		c.ensureExists, c.ensureInventories, c.ensureTraits, c.ensureAggregates,
	} {
		if err := c.conn.again(ctx, func() error { return step(ctx, p) }); err != nil {
			return err
		}
	}
	return nil
}

func (c *Client) ensureExists(ctx context.Context, p croft.Provider) error {
	var have providerBody
	err := c.conn.call(ctx, http.MethodGet, providerPath(p.ID, ""), nil, &have)
	switch {
	case is(err, http.StatusNotFound, ""):
		err = c.conn.call(ctx, http.MethodPost, "/resource_providers",
			map[string]string{"uuid": string(p.ID), "name": p.Name}, nil)
		if is(err, http.StatusConflict, "") { // perhaps created by us, with the answer lost
			again := c.conn.call(ctx, http.MethodGet, providerPath(p.ID, ""), nil, &have)
			if again == nil && have.Name == p.Name {
				return nil
			}
		}
	case err == nil && have.Name != p.Name:
		err = c.conn.call(ctx, http.MethodPut, providerPath(p.ID, ""), map[string]string{"name": p.Name}, nil)
	}
	if is(err, http.StatusConflict, "") {
		return nameTaken(p.Name, err)
	}
	return err
}

func nameTaken(name string, err error) error {
	return croft.Errorf(croft.Conflict, "another resource provider is called %q already; give this host another "+
		"name, or remove that provider (%w)", name, err)
}

// inventoriesOf returns a provider's inventories with defaults applied.
func inventoriesOf(p croft.Provider) map[croft.ResourceClass]croft.Inventory {
	all := make(map[croft.ResourceClass]croft.Inventory, len(p.Inventories))
	for class, i := range p.Inventories {
		i.MinUnit, i.StepSize = cmp.Or(i.MinUnit, 1), cmp.Or(i.StepSize, 1)
		i.MaxUnit, i.AllocationRatio = cmp.Or(i.MaxUnit, i.Total), cmp.Or(i.AllocationRatio, 1)
		all[class] = i
	}
	return all
}

type inventoriesBody struct {
	Generation  int64                                   `json:"resource_provider_generation"`
	Inventories map[croft.ResourceClass]croft.Inventory `json:"inventories"`
}

func (c *Client) ensureInventories(ctx context.Context, p croft.Provider) error {
	want := inventoriesOf(p)
	path := providerPath(p.ID, "/inventories")
	var have inventoriesBody
	if err := c.conn.call(ctx, http.MethodGet, path, nil, &have); err != nil {
		return err
	}
	if maps.EqualFunc(have.Inventories, want, sameInventory) {
		return nil
	}
	for class := range want {
		if _, known := have.Inventories[class]; !known && strings.HasPrefix(string(class), "CUSTOM_") {
			path := "/resource_classes/" + url.PathEscape(string(class))
			if err := c.conn.call(ctx, http.MethodPut, path, nil, nil); err != nil {
				return err
			}
		}
	}
	return c.conn.call(ctx, http.MethodPut, path, inventoriesBody{have.Generation, want}, nil)
}

// sameInventory reports whether inventories are equal, with ratios compared in single precision, as databases store
// them.
func sameInventory(a, b croft.Inventory) bool {
	sameRatio := float32(a.AllocationRatio) == float32(b.AllocationRatio)
	a.AllocationRatio, b.AllocationRatio = 0, 0
	return sameRatio && a == b
}

type traitsBody struct {
	Generation int64         `json:"resource_provider_generation"`
	Traits     []croft.Trait `json:"traits"`
}

// ensureTraits sets a provider's traits. It leaves out standard traits that the server, which may be older than this
// program, does not know.
func (c *Client) ensureTraits(ctx context.Context, p croft.Provider) error {
	path := providerPath(p.ID, "/traits")
	var have traitsBody
	if err := c.conn.call(ctx, http.MethodGet, path, nil, &have); err != nil {
		return err
	}
	want := sorted(p.Traits)
	if slices.Equal(sorted(have.Traits), want) {
		return nil
	}
	known, err := c.knownTraits(ctx, want)
	if err != nil {
		return err
	}
	if slices.Equal(sorted(have.Traits), known) {
		return nil
	}
	return c.conn.call(ctx, http.MethodPut, path, traitsBody{have.Generation, known}, nil)
}

// sorted returns a sorted list without duplicates, never nil.
func sorted[T ~string](list []T) []T {
	out := append([]T{}, list...)
	slices.Sort(out)
	return slices.Compact(out)
}

// knownTraits creates missing custom traits, and returns the wanted traits that then exist.
func (c *Client) knownTraits(ctx context.Context, want []croft.Trait) ([]croft.Trait, error) {
	if len(want) == 0 {
		return want, nil
	}
	names := make([]string, len(want))
	for i, t := range want {
		names[i] = string(t)
	}
	var have traitsBody
	query := url.Values{"name": {"in:" + strings.Join(names, ",")}}
	if err := c.conn.call(ctx, http.MethodGet, "/traits?"+query.Encode(), nil, &have); err != nil {
		return nil, err
	}
	for _, t := range want {
		if strings.HasPrefix(string(t), "CUSTOM_") && !slices.Contains(have.Traits, t) {
			if err := c.conn.call(ctx, http.MethodPut, "/traits/"+url.PathEscape(string(t)), nil, nil); err != nil {
				return nil, err
			}
			have.Traits = append(have.Traits, t)
		}
	}
	return sorted(have.Traits), nil
}

type aggregatesBody struct {
	Generation int64    `json:"resource_provider_generation"`
	Aggregates []string `json:"aggregates"`
}

func (c *Client) ensureAggregates(ctx context.Context, p croft.Provider) error {
	path := providerPath(p.ID, "/aggregates")
	var have aggregatesBody
	if err := c.conn.call(ctx, http.MethodGet, path, nil, &have); err != nil {
		return err
	}
	want := sorted(p.Aggregates)
	if slices.Equal(sorted(have.Aggregates), want) {
		return nil
	}
	return c.conn.call(ctx, http.MethodPut, path, aggregatesBody{have.Generation, want}, nil)
}

// readers is the number of providers read concurrently.
const readers = 16

// Providers implements schedule.Claims. It leaves out a provider that is deleted while it reads.
func (c *Client) Providers(ctx context.Context) ([]croft.Provider, error) {
	if all, done, err := c.providersAtOnce(ctx); done {
		return all, err
	}
	var list struct {
		Providers []providerBody `json:"resource_providers"`
	}
	if err := c.conn.call(ctx, http.MethodGet, "/resource_providers", nil, &list); err != nil {
		return nil, err
	}
	out := make([]*croft.Provider, len(list.Providers))
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(readers)
	for i, p := range list.Providers {
		work.Go(func() error {
			described, err := c.describe(ctx, p)
			if !is(err, http.StatusNotFound, "") {
				out[i] = described
				return err
			}
			return nil
		})
	}
	if err := work.Wait(); err != nil {
		return nil, err
	}
	var present []croft.Provider
	for _, p := range out {
		if p != nil {
			present = append(present, *p)
		}
	}
	return present, nil
}

// Provider implements hosts.Claims.
func (c *Client) Provider(ctx context.Context, id croft.HostID) (croft.Provider, error) {
	var p providerBody
	err := c.conn.call(ctx, http.MethodGet, providerPath(id, ""), nil, &p)
	if err == nil {
		var described *croft.Provider
		if described, err = c.describe(ctx, p); err == nil {
			return *described, nil
		}
	}
	if is(err, http.StatusNotFound, "") {
		err = croft.Errorf(croft.NotFound, "there is no resource provider %s", id)
	}
	return croft.Provider{}, err
}

func (c *Client) describe(ctx context.Context, p providerBody) (*croft.Provider, error) {
	var inventories inventoriesBody
	var usages struct {
		Usages croft.Resources `json:"usages"`
	}
	var traits traitsBody
	var aggregates aggregatesBody
	for sub, out := range map[string]any{"/inventories": &inventories, "/usages": &usages, "/traits": &traits,
		"/aggregates": &aggregates} {
		if err := c.conn.call(ctx, http.MethodGet, providerPath(p.UUID, sub), nil, out); err != nil {
			return nil, err
		}
	}
	return &croft.Provider{ID: p.UUID, Root: p.Root, Name: p.Name, Inventories: inventories.Inventories,
		Used: usages.Usages, Traits: traits.Traits, Aggregates: aggregates.Aggregates}, nil
}

// RemoveProvider implements hosts.Claims.
func (c *Client) RemoveProvider(ctx context.Context, host croft.HostID) error {
	err := c.conn.again(ctx, func() error {
		err := c.conn.call(ctx, http.MethodDelete, providerPath(host, ""), nil, nil)
		if is(err, http.StatusNotFound, "") {
			return nil
		}
		return err
	})
	if is(err, http.StatusConflict, "") {
		return croft.Errorf(croft.Conflict, "a request is under way that claims from the host; try again (%w)", err)
	}
	return err
}
