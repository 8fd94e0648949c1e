package placement

import (
	"bytes"
	"encoding/json"
	"net/http"

	"croft/placement/internal/schema"
	"croft/placement/ledger"
)

// Microversions of inventories: 1.5 adds DELETE of all, 1.15 headers, 1.26 allows reserved to be as much as total.

const (
	inventoryProperties = `"resource_provider_generation": {"type": "integer"},
		"total": {"type": "integer", "maximum": 2147483647, "minimum": 1},
		"reserved": {"type": "integer", "maximum": 2147483647, "minimum": 0},
		"min_unit": {"type": "integer", "maximum": 2147483647, "minimum": 1},
		"max_unit": {"type": "integer", "maximum": 2147483647, "minimum": 1},
		"step_size": {"type": "integer", "maximum": 2147483647, "minimum": 1},
		"allocation_ratio": {"type": "number", "maximum": 3.40282e+38}`
	classPattern       = `^[A-Z0-9_]+$`
	putInventoriesText = `{"type": "object", "properties": {"resource_provider_generation": {"type": "integer"},
		"inventories": {"type": "object", "patternProperties": {"` + classPattern + `": {"type": "object",
			"properties": {` + inventoryProperties + `}, "required": ["total"], "additionalProperties": false}}}},
		"required": ["resource_provider_generation", "inventories"], "additionalProperties": false}`
)

var (
	putInventory = schema.Must(`{"type": "object", "properties": {` + inventoryProperties + `},
		"required": ["total", "resource_provider_generation"], "additionalProperties": false}`)
	postInventory = schema.Must(`{"type": "object", "properties": {` + inventoryProperties + `,
		"resource_class": {"type": "string", "pattern": "` + classPattern + `"}},
		"required": ["total", "resource_class"], "additionalProperties": false}`)
	putInventories = schema.Must(putInventoriesText)
)

// exhausted tells whether all of an inventory may be reserved.
func (v version) exhausted() bool { return v >= 26 }

// inventoryAnswer is an inventory in an answer.
type inventoryAnswer struct {
	Total    int64   `json:"total"`
	Reserved int64   `json:"reserved"`
	MinUnit  int64   `json:"min_unit"`
	MaxUnit  int64   `json:"max_unit"`
	StepSize int64   `json:"step_size"`
	Ratio    decimal `json:"allocation_ratio"`
}

// decimal is a number that is written with a decimal point, 1.0 and not 1: clients print it as they get it.
type decimal float64

// MarshalJSON implements json.Marshaler.
func (d decimal) MarshalJSON() ([]byte, error) {
	text, err := json.Marshal(float64(d))
	if err == nil && !bytes.ContainsAny(text, ".e") {
		text = append(text, ".0"...)
	}
	return text, err
}

func inventoryOf(i *ledger.Inventory) inventoryAnswer {
	return inventoryAnswer{i.Total, i.Reserved, i.MinUnit, i.MaxUnit, i.StepSize, decimal(i.Ratio)}
}

// oneInventory is the answer about one inventory. The original leaves out a generation of 0.
type oneInventory struct {
	inventoryAnswer
	Generation int64 `json:"resource_provider_generation,omitempty"`
}

// inventoriesAnswer is the answer about all inventories of a provider.
type inventoriesAnswer struct {
	Generation  int64         `json:"resource_provider_generation"`
	Inventories inventoryList `json:"inventories"`
}

// inventoryList is written as an object of inventories by class, in the order of the list, which is the original's.
type inventoryList []namedInventory

type namedInventory struct {
	class string
	inventoryAnswer
}

// MarshalJSON implements json.Marshaler.
func (l inventoryList) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, inv := range l {
		if i > 0 {
			b = append(b, ',')
		}
		name, err := json.Marshal(inv.class)
		if err != nil {
			return nil, err
		}
		text, err := json.Marshal(inv.inventoryAnswer)
		if err != nil {
			return nil, err
		}
		b = append(append(append(b, name...), ':'), text...)
	}
	return append(b, '}'), nil
}

func inventoriesOf(p *ledger.ProviderData, v ledger.Vocabulary) inventoriesAnswer {
	return inventoriesAnswer{p.Generation, inventoriesByClass(p, v)}
}

func inventoriesByClass(p *ledger.ProviderData, v ledger.Vocabulary) inventoryList {
	out := make(inventoryList, len(p.Inventories))
	for i := range p.Inventories {
		out[i] = namedInventory{v.ClassName(p.Inventories[i].Class), inventoryOf(&p.Inventories[i])}
	}
	return out
}

// okInventories answers 200. Without inventories the original does not say when they were modified.
func (q *request) okInventories(a inventoriesAnswer, modified int64) *response {
	resp := q.ok(a, modified)
	if len(a.Inventories) == 0 {
		resp.header.Del("Last-Modified")
	}
	return resp
}

// listInventories is GET /resource_providers/{uuid}/inventories.
func (s *Server) listInventories(q *request) (*response, error) {
	var answer inventoriesAnswer
	var modified int64
	err := s.ledger.View(func(st *ledger.State) error {
		p := st.Provider(q.path[0])
		if p == nil {
			return noProviderHere(q.path[0], " ")
		}
		answer, modified = inventoriesOf(&p.ProviderData, st), p.Changed()
		return nil
	})
	if err != nil {
		return nil, err
	}
	return q.okInventories(answer, modified), nil
}

// showInventory is GET /resource_providers/{uuid}/inventories/{resource_class}.
func (s *Server) showInventory(q *request) (*response, error) {
	return s.view(q, func(st *ledger.State) (any, int64, error) {
		p := st.Provider(q.path[0])
		if p == nil {
			return nil, 0, noProviderHere(q.path[0], " ")
		}
		if c := st.Classes().Get(q.path[1]); c != nil {
			if i := p.Inventory(c.ID()); i != nil {
				return oneInventory{inventoryOf(i), p.Generation}, p.Changed(), nil
			}
		}
		return nil, 0, notFound("No inventory of class %s for %s", q.path[1], p.UUID)
	})
}

// createInventory is POST /resource_providers/{uuid}/inventories.
func (s *Server) createInventory(q *request) (*response, error) {
	uuid := q.path[0]
	if err := s.ledger.Exists(q.r.Context(), uuid); err != nil {
		return nil, err
	}
	var body inventoryRequest
	if err := q.read(postInventory, &body); err != nil {
		return nil, err
	}
	spec := body.spec(body.Class)
	if err := ledger.CheckCapacity(uuid, q.version.exhausted(), spec); err != nil {
		return nil, badRequest("Unable to create inventory for resource provider %s: %v", uuid, err)
	}
	var p ledger.ProviderData
	err := s.ledger.Change(q.r.Context(), func(t *ledger.Tx) (err error) {
		p, err = t.CreateInventory(uuid, spec)
		return err
	})
	if err != nil {
		return nil, err
	}
	resp := q.ok(oneInventory{inventoryOf(&spec.Inventory), p.Generation}, p.Changed())
	resp.status = http.StatusCreated
	q.location(resp, "/resource_providers/"+uuid+"/inventories/"+body.Class)
	return resp, nil
}

// setInventories is PUT /resource_providers/{uuid}/inventories.
func (s *Server) setInventories(q *request) (*response, error) {
	uuid := q.path[0]
	if err := s.ledger.Exists(q.r.Context(), uuid); err != nil {
		return nil, err
	}
	var body inventoriesRequest
	if err := q.read(putInventories, &body); err != nil {
		return nil, err
	}
	var answer inventoriesAnswer
	var modified int64
	err := s.ledger.Change(q.r.Context(), func(t *ledger.Tx) error {
		p, err := t.SetInventories(uuid, int64(body.Generation), q.version.exhausted(), body.Inventories.specs())
		answer, modified = inventoriesOf(&p, t), p.Changed()
		return err
	})
	if err != nil {
		return nil, err
	}
	return q.okInventories(answer, modified), nil
}

// deleteInventories is DELETE /resource_providers/{uuid}/inventories.
func (s *Server) deleteInventories(q *request) (*response, error) {
	return s.change(q, func(t *ledger.Tx) error { return t.DeleteInventories(q.path[0]) })
}

// updateInventory is PUT /resource_providers/{uuid}/inventories/{resource_class}.
func (s *Server) updateInventory(q *request) (*response, error) {
	uuid := q.path[0]
	if err := s.ledger.Exists(q.r.Context(), uuid); err != nil {
		return nil, err
	}
	var body inventoryRequest
	if err := q.read(putInventory, &body); err != nil {
		return nil, err
	}
	spec := body.spec(q.path[1])
	var p ledger.ProviderData
	err := s.ledger.Change(q.r.Context(), func(t *ledger.Tx) (err error) {
		p, err = t.UpdateInventory(uuid, int64(body.Generation), q.version.exhausted(), spec)
		return err
	})
	if err != nil {
		return nil, err
	}
	return q.ok(oneInventory{inventoryOf(&spec.Inventory), p.Generation}, p.Changed()), nil
}

// deleteInventory is DELETE /resource_providers/{uuid}/inventories/{resource_class}.
func (s *Server) deleteInventory(q *request) (*response, error) {
	return s.change(q, func(t *ledger.Tx) error { return t.DeleteInventory(q.path[0], q.path[1]) })
}
