package placement

import (
	"net/http"

	"github.com/google/uuid"

	"croft/placement/internal/schema"
	"croft/placement/ledger"
)

// Microversions of /resource_providers: 1.1, 1.6 and 1.11 add links, 1.14 parents and in_tree, 1.15 headers, 1.20 a
// body in the answer to POST, 1.37 moves between parents. For the filters see filters.go.

const parentProperty = "parent_provider_uuid"

// parentSchema is the addition of 1.14 to the schemas of bodies.
const parentSchema = `, "` + parentProperty + `": {"anyOf": [{"type": "string", "format": "uuid"}, {"type": "null"}]}`

func providerSchema(more string) *schema.Schema {
	return schema.Must(`{"type": "object", "properties": {"name": {"type": "string", "maxLength": 200}` + more +
		`}, "required": ["name"], "additionalProperties": false}`)
}

const uuidProperty = `, "uuid": {"type": "string", "format": "uuid"}`

var (
	postProvider = []versioned{{14, providerSchema(uuidProperty + parentSchema)}, {0, providerSchema(uuidProperty)}}
	putProvider  = []versioned{{14, providerSchema(parentSchema)}, {0, providerSchema("")}}
)

// link points to a related object.
type link struct {
	Rel  string `json:"rel"`
	Href string `json:"href"`
}

// providerAnswer is a provider in an answer.
type providerAnswer struct {
	UUID       string `json:"uuid"`
	Name       string `json:"name"`
	Generation int64  `json:"generation"`
	Links      []link `json:"links"`
	*treeAnswer
}

// treeAnswer is a provider's position in its tree.
type treeAnswer struct {
	Parent nullable `json:"parent_provider_uuid"`
	Root   string   `json:"root_provider_uuid"`
}

var providerLinks = []struct {
	rel   string
	since version
}{{"inventories", 0}, {"usages", 0}, {"aggregates", 1}, {"traits", 6}, {"allocations", 11}}

func (q *request) provider(p *ledger.ProviderData, root string) providerAnswer {
	url := "/resource_providers/" + p.UUID
	a := providerAnswer{UUID: p.UUID, Name: p.Name, Generation: p.Generation, Links: []link{{"self", url}}}
	for _, l := range providerLinks {
		if q.version >= l.since {
			a.Links = append(a.Links, link{l.rel, url + "/" + l.rel})
		}
	}
	if q.version >= 14 {
		a.treeAnswer = &treeAnswer{nullable(p.Parent), root}
	}
	return a
}

// providers handles /resource_providers.
type providers struct{ ledger *ledger.Ledger }

// create serves POST /resource_providers.
func (h providers) create(q *request) (*response, error) {
	body, err := q.read(pick(q.version, postProvider))
	if err != nil {
		return nil, err
	}
	id, given := schema.UUID(body.Get("uuid").Text())
	if !given {
		id = uuid.NewString()
	}
	resp, err := q.update(h.ledger, func(t *ledger.Tx) (any, int64, error) {
		p, root, err := t.CreateProvider(id, body.Get("name").Text(), body.Get(parentProperty).Text())
		return q.provider(&p, root), p.Created, err
	})
	switch {
	case err != nil:
		return nil, err
	case q.version < 20:
		resp = &response{status: http.StatusCreated}
	}
	q.location(resp, "/resource_providers/"+id)
	return resp, nil
}

// show serves GET /resource_providers/{uuid}.
func (h providers) show(q *request) (*response, error) {
	return q.view(h.ledger, func(st *ledger.State) (any, int64, error) {
		p, err := st.FindProvider(q.path[0])
		if err != nil {
			return nil, 0, err
		}
		return q.provider(&p.ProviderData, p.Root().UUID), p.Changed(), nil
	})
}

// update serves PUT /resource_providers/{uuid}.
func (h providers) update(q *request) (*response, error) {
	id := q.path[0]
	body, err := q.readFor(h.ledger, id, pick(q.version, putProvider))
	if err != nil {
		return nil, err
	}
	change := ledger.ProviderChange{Name: body.Get("name").Text(), Reparent: body.Has(parentProperty),
		Parent: body.Get(parentProperty).Text(), Freely: q.version >= 37}
	return q.update(h.ledger, func(t *ledger.Tx) (any, int64, error) {
		p, root, err := t.UpdateProvider(id, change)
		return q.provider(&p, root), p.Changed(), err
	})
}

// delete serves DELETE /resource_providers/{uuid}.
func (h providers) delete(q *request) (*response, error) {
	return q.change(h.ledger, func(t *ledger.Tx) error { return t.DeleteProvider(q.path[0]) })
}

// noProviderHere returns the NotFound error for a missing provider, in the words of most paths below a provider.
func noProviderHere(uuid, blank string) error {
	return notFound("No resource provider with uuid %s found%s: No resource provider with uuid %s found", uuid, blank,
		uuid)
}
