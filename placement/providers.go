package placement

import (
	"net/http"

	"github.com/google/uuid"

	"croft/placement/internal/schema"
	"croft/placement/ledger"
)

// Microversions of /resource_providers: 1.1, 1.6 and 1.11 add links, 1.14 parents and in_tree, 1.15 headers, 1.20 a
// body in the answer to POST, 1.37 moves between parents; 1.3, 1.4, 1.14 and 1.18 add filters, see filters.go.

// parentSchema is what 1.14 adds to the bodies.
const parentSchema = `, "parent_provider_uuid": {"anyOf": [{"type": "string", "format": "uuid"}, {"type": "null"}]}`

func providerSchema(more string) *schema.Schema {
	return schema.Must(`{"type": "object", "properties": {"name": {"type": "string", "maxLength": 200}` + more +
		`}, "required": ["name"], "additionalProperties": false}`)
}

const uuidProperty = `, "uuid": {"type": "string", "format": "uuid"}`

var (
	postProvider = []versioned{{14, providerSchema(uuidProperty + parentSchema)}, {0, providerSchema(uuidProperty)}}
	putProvider  = []versioned{{14, providerSchema(parentSchema)}, {0, providerSchema("")}}
)

// providerRequest is the body of POST and PUT.
type providerRequest struct {
	UUID   string   `json:"uuid"`
	Name   string   `json:"name"`
	Parent optional `json:"parent_provider_uuid"`
}

// link points from an object to another one.
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

// createProvider is POST /resource_providers.
func (s *Server) createProvider(q *request) (*response, error) {
	var body providerRequest
	if err := q.read(pick(q.version, postProvider), &body); err != nil {
		return nil, err
	}
	id, given := schema.UUID(body.UUID)
	if !given {
		id = uuid.NewString()
	}
	var p ledger.ProviderData
	var root string
	err := s.ledger.Change(q.r.Context(), func(t *ledger.Tx) (err error) {
		p, root, err = t.CreateProvider(id, body.Name, body.Parent.value)
		return err
	})
	if err != nil {
		return nil, err
	}
	resp := &response{status: http.StatusCreated}
	if q.version >= 20 {
		resp = q.ok(q.provider(&p, root), p.Created)
	}
	q.location(resp, "/resource_providers/"+id)
	return resp, nil
}

// showProvider is GET /resource_providers/{uuid}.
func (s *Server) showProvider(q *request) (*response, error) {
	return s.view(q, func(st *ledger.State) (any, int64, error) {
		p, err := st.FindProvider(q.path[0])
		if err != nil {
			return nil, 0, err
		}
		return q.provider(&p.ProviderData, p.Root().UUID), p.Changed(), nil
	})
}

// updateProvider is PUT /resource_providers/{uuid}. Like the other updates of a provider it answers 404 before it looks
// at the body, as the original does.
func (s *Server) updateProvider(q *request) (*response, error) {
	id := q.path[0]
	if err := s.ledger.Exists(q.r.Context(), id); err != nil {
		return nil, err
	}
	var body providerRequest
	if err := q.read(pick(q.version, putProvider), &body); err != nil {
		return nil, err
	}
	change := ledger.ProviderChange{Name: body.Name, Reparent: body.Parent.given, Parent: body.Parent.value,
		Freely: q.version >= 37}
	var p ledger.ProviderData
	var root string
	err := s.ledger.Change(q.r.Context(), func(t *ledger.Tx) (err error) {
		p, root, err = t.UpdateProvider(id, change)
		return err
	})
	if err != nil {
		return nil, err
	}
	return q.ok(q.provider(&p, root), p.Changed()), nil
}

// deleteProvider is DELETE /resource_providers/{uuid}.
func (s *Server) deleteProvider(q *request) (*response, error) {
	return s.change(q, func(t *ledger.Tx) error { return t.DeleteProvider(q.path[0]) })
}

// noProviderHere is how most resources below a provider word that it does not exist.
func noProviderHere(uuid, blank string) error {
	return notFound("No resource provider with uuid %s found%s: No resource provider with uuid %s found", uuid, blank,
		uuid)
}
