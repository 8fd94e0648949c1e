package placement

import (
	"net/http"

	"croft/placement/internal/schema"
	"croft/placement/ledger"
)

// This file serves two requests that the Placement API lacks and croft's client sends often: reading all providers with
// everything about them, and bringing one provider to a wanted state in one transaction, which writes nothing if the
// state is already right (204). Their paths start with /croft; other Placements answer 404.

var putWhole = schema.Must(`{"type": "object", "properties": {
	"name": {"type": "string", "minLength": 1, "maxLength": 200},
	"inventories": {"type": "object", "patternProperties": {"` + classPattern + `": {"type": "object",
		"properties": {` + inventoryProperties + `}, "required": ["total"], "additionalProperties": false}},
		"additionalProperties": false},
	"traits": {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 255}},
	"aggregates": ` + aggregateList + `},
	"required": ["name", "inventories", "traits", "aggregates"], "additionalProperties": false}`)

// wholeProvider is a provider with everything about it.
type wholeProvider struct {
	UUID        string           `json:"uuid"`
	Name        string           `json:"name"`
	Root        string           `json:"root_provider_uuid"`
	Generation  int64            `json:"generation"`
	Inventories inventoryList    `json:"inventories"`
	Usages      map[string]int64 `json:"usages"`
	Traits      []string         `json:"traits"`
	Aggregates  []string         `json:"aggregates"`
}

// wholeProviders handles /croft/providers.
type wholeProviders struct{ ledger *ledger.Ledger }

// list serves GET /croft/providers.
func (h wholeProviders) list(q *request) (*response, error) {
	return q.view(h.ledger, func(st *ledger.State) (any, int64, error) {
		list := make([]wholeProvider, len(st.Providers()))
		for i, p := range st.Providers() {
			list[i] = wholeProvider{p.UUID, p.Name, p.Root().UUID, p.Generation,
				inventoriesByClass(&p.ProviderData, st),
				usagesOf(&p.ProviderData, st), traitNames(&p.ProviderData, st), append([]string{}, p.Aggregates...)}
		}
		return struct {
			Providers []wholeProvider `json:"providers"`
		}{list}, 0, nil
	})
}

// broughtStatus is the status of each outcome of putWholeProvider.
var broughtStatus = map[ledger.Brought]int{ledger.Created: http.StatusCreated, ledger.Changed: http.StatusOK,
	ledger.Unchanged: http.StatusNoContent}

// put serves PUT /croft/providers/{uuid}. It creates the provider, and missing custom classes and traits; unknown
// standard traits are left out.
func (h wholeProviders) put(q *request) (*response, error) {
	uuid, valid := schema.UUID(q.path[0])
	if !valid {
		return nil, badRequest("'%s' is not a UUID", q.path[0])
	}
	body, err := q.read(putWhole)
	if err != nil {
		return nil, err
	}
	want := ledger.ProviderSpec{Name: body.Get("name").Text(), Inventories: readInventories(body),
		Traits: body.Get("traits").Texts(), Aggregates: body.Get("aggregates").Texts()}
	if err := ledger.CheckCapacity(uuid, q.version.exhausted(), want.Inventories...); err != nil {
		return nil, badRequest("Unable to update inventory for resource provider %s: %v", uuid, err)
	}
	var done ledger.Brought
	err = h.ledger.Change(q.r.Context(), func(t *ledger.Tx) (err error) {
		done, err = t.BringProvider(uuid, want)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &response{status: broughtStatus[done]}, nil
}
