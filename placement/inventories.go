package placement

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http"

	"croft/placement/internal/schema"
	"croft/placement/ledger"
)

// Microversions of inventories: 1.5 adds DELETE of all, 1.15 headers, 1.26 lets reserved equal total.

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

// exhausted reports whether reserved may equal total.
func (v version) exhausted() bool { return v >= 26 }

// inventoryRequest is an inventory in a request. Absent fields take their defaults.
type inventoryRequest struct {
	Generation schema.Integer `json:"resource_provider_generation"`
	Class      string         `json:"resource_class"`
	Total      schema.Integer `json:"total"`
	Reserved   schema.Integer `json:"reserved"`
	MinUnit    schema.Integer `json:"min_unit"`
	MaxUnit    schema.Integer `json:"max_unit"`
	StepSize   schema.Integer `json:"step_size"`
	Ratio      float64        `json:"allocation_ratio"`
}

// UnmarshalJSON implements json.Unmarshaler.
func (i *inventoryRequest) UnmarshalJSON(text []byte) error {
	type plain inventoryRequest
	*i = inventoryRequest{MinUnit: 1, MaxUnit: math.MaxInt32, StepSize: 1, Ratio: 1}
	return json.Unmarshal(text, (*plain)(i))
}

// spec returns the inventory for a class.
func (i *inventoryRequest) spec(class string) ledger.InventorySpec {
	return ledger.InventorySpec{Name: class, Inventory: ledger.Inventory{Total: int64(i.Total),
		Reserved: int64(i.Reserved),
		MinUnit:  int64(i.MinUnit), MaxUnit: int64(i.MaxUnit), StepSize: int64(i.StepSize), Ratio: i.Ratio}}
}

// inventoryRequests holds inventories by class.
type inventoryRequests schema.Members[inventoryRequest]

// UnmarshalJSON implements json.Unmarshaler.
func (i *inventoryRequests) UnmarshalJSON(text []byte) error {
	return (*schema.Members[inventoryRequest])(i).UnmarshalJSON(text)
}

func (i inventoryRequests) specs() []ledger.InventorySpec {
	var list []ledger.InventorySpec
	for _, m := range i {
		list = append(list, m.Value.spec(m.Name))
	}
	return list
}

// inventoriesRequest replaces all inventories of a provider.
type inventoriesRequest struct {
	Generation  schema.Integer    `json:"resource_provider_generation"`
	Inventories inventoryRequests `json:"inventories"`
}

// inventoryAnswer is an inventory in an answer.
type inventoryAnswer struct {
	Total    int64   `json:"total"`
	Reserved int64   `json:"reserved"`
	MinUnit  int64   `json:"min_unit"`
	MaxUnit  int64   `json:"max_unit"`
	StepSize int64   `json:"step_size"`
	Ratio    decimal `json:"allocation_ratio"`
}

// decimal is a number encoded with a decimal point, 1.0 and not 1: clients print it as they receive it.
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

// oneInventory is the answer about one inventory. Like the original, it omits a generation of 0.
type oneInventory struct {
	inventoryAnswer
	Generation int64 `json:"resource_provider_generation,omitempty"`
}

// inventoriesAnswer is the answer about all inventories of a provider.
type inventoriesAnswer struct {
	Generation  int64         `json:"resource_provider_generation"`
	Inventories inventoryList `json:"inventories"`
}

// inventoryList is encoded as an object of inventories by class, in the order of the list, as in the original.
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

// dated removes the modification date from an answer without inventories, as the original does.
func (a *inventoriesAnswer) dated(resp *response, err error) (*response, error) {
	if err == nil && len(a.Inventories) == 0 {
		resp.header.Del("Last-Modified")
	}
	return resp, err
}

// inventories handles /resource_providers/{uuid}/inventories.
type inventories struct{ ledger *ledger.Ledger }

// list serves GET /resource_providers/{uuid}/inventories.
func (h inventories) list(q *request) (*response, error) {
	var answer inventoriesAnswer
	return answer.dated(q.view(h.ledger, func(st *ledger.State) (any, int64, error) {
		p := st.Provider(q.path[0])
		if p == nil {
			return nil, 0, noProviderHere(q.path[0], " ")
		}
		answer = inventoriesOf(&p.ProviderData, st)
		return answer, p.Changed(), nil
	}))
}

// show serves GET /resource_providers/{uuid}/inventories/{resource_class}.
func (h inventories) show(q *request) (*response, error) {
	return q.view(h.ledger, func(st *ledger.State) (any, int64, error) {
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

// create serves POST /resource_providers/{uuid}/inventories.
func (h inventories) create(q *request) (*response, error) {
	uuid := q.path[0]
	var body inventoryRequest
	if err := q.readFor(h.ledger, uuid, postInventory, &body); err != nil {
		return nil, err
	}
	spec := body.spec(body.Class)
	if err := ledger.CheckCapacity(uuid, q.version.exhausted(), spec); err != nil {
		return nil, badRequest("Unable to create inventory for resource provider %s: %v", uuid, err)
	}
	resp, err := q.update(h.ledger, func(t *ledger.Tx) (any, int64, error) {
		p, err := t.CreateInventory(uuid, spec)
		return oneInventory{inventoryOf(&spec.Inventory), p.Generation}, p.Changed(), err
	})
	if err != nil {
		return nil, err
	}
	resp.status = http.StatusCreated
	q.location(resp, "/resource_providers/"+uuid+"/inventories/"+body.Class)
	return resp, nil
}

// set serves PUT /resource_providers/{uuid}/inventories.
func (h inventories) set(q *request) (*response, error) {
	uuid := q.path[0]
	var body inventoriesRequest
	if err := q.readFor(h.ledger, uuid, putInventories, &body); err != nil {
		return nil, err
	}
	var answer inventoriesAnswer
	return answer.dated(q.update(h.ledger, func(t *ledger.Tx) (any, int64, error) {
		p, err := t.SetInventories(uuid, int64(body.Generation), q.version.exhausted(), body.Inventories.specs())
		answer = inventoriesOf(&p, t)
		return answer, p.Changed(), err
	}))
}

// deleteAll serves DELETE /resource_providers/{uuid}/inventories.
func (h inventories) deleteAll(q *request) (*response, error) {
	return q.change(h.ledger, func(t *ledger.Tx) error { return t.DeleteInventories(q.path[0]) })
}

// update serves PUT /resource_providers/{uuid}/inventories/{resource_class}.
func (h inventories) update(q *request) (*response, error) {
	uuid := q.path[0]
	var body inventoryRequest
	if err := q.readFor(h.ledger, uuid, putInventory, &body); err != nil {
		return nil, err
	}
	spec := body.spec(q.path[1])
	return q.update(h.ledger, func(t *ledger.Tx) (any, int64, error) {
		p, err := t.UpdateInventory(uuid, int64(body.Generation), q.version.exhausted(), spec)
		return oneInventory{inventoryOf(&spec.Inventory), p.Generation}, p.Changed(), err
	})
}

// delete serves DELETE /resource_providers/{uuid}/inventories/{resource_class}.
func (h inventories) delete(q *request) (*response, error) {
	return q.change(h.ledger, func(t *ledger.Tx) error { return t.DeleteInventory(q.path[0], q.path[1]) })
}
