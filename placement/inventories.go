package placement

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/http"

	"croft/placement/internal/schema"
	"croft/placement/ledger"
)

// Microversions of inventories: 1.5 adds DELETE of all inventories, 1.15 headers, 1.26 lets reserved equal total.

const (
	inventoryProperties = `"resource_provider_generation": {"type": "integer"},
		"total": {"type": "integer", "maximum": 2147483647, "minimum": 1},
		"reserved": {"type": "integer", "maximum": 2147483647, "minimum": 0},
		"min_unit": {"type": "integer", "maximum": 2147483647, "minimum": 1},
		"max_unit": {"type": "integer", "maximum": 2147483647, "minimum": 1},
		"step_size": {"type": "integer", "maximum": 2147483647, "minimum": 1},
		"allocation_ratio": {"type": "number", "minimum": -1.7976931348623157e308, "maximum": 3.40282e+38}`
	classPattern       = `^[A-Z0-9_]+$`
	putInventoriesText = `{"type": "object", "properties": {"resource_provider_generation": {"type": "integer"},
		"inventories": {"type": "object", "patternProperties": {"` + classPattern + `": {"type": "object",
			"properties": {` + inventoryProperties + `}, "required": ["total"], "additionalProperties": false}},
			"additionalProperties": {"type": "object"}}},
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

// readInventory reads the inventory of a class. Absent fields take their defaults.
func readInventory(class string, v schema.Value) ledger.InventorySpec {
	return ledger.InventorySpec{Name: class, Inventory: ledger.Inventory{
		Total: v.Get("total").Integer(0), Reserved: v.Get("reserved").Integer(0),
		MinUnit: v.Get("min_unit").Integer(1), MaxUnit: v.Get("max_unit").Integer(math.MaxInt32),
		StepSize: v.Get("step_size").Integer(1), Ratio: v.Get("allocation_ratio").Float(1)}}
}

// readInventories reads the inventories by class in a body.
func readInventories(body schema.Value) []ledger.InventorySpec {
	var list []ledger.InventorySpec
	for _, i := range body.Get("inventories").Parts() {
		list = append(list, readInventory(i.Name, i.Value))
	}
	return list
}

// generation returns the generation of a provider in a body; 0: the body has none.
func generation(body schema.Value) int64 { return body.Get("resource_provider_generation").Integer(0) }

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
		ratio, err := inv.Ratio.MarshalJSON()
		if err != nil {
			return nil, err
		}
		b = fmt.Appendf(append(appendString(b, inv.class), ':'), `{"total":%d,"reserved":%d,"min_unit":%d,`+
			`"max_unit":%d,"step_size":%d,"allocation_ratio":%s}`,
			inv.Total, inv.Reserved, inv.MinUnit, inv.MaxUnit, inv.StepSize, ratio)
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
	body, err := q.readFor(h.ledger, uuid, postInventory)
	if err != nil {
		return nil, err
	}
	spec := readInventory(body.Get("resource_class").Text(), body)
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
	q.location(resp, "/resource_providers/"+uuid+"/inventories/"+spec.Name)
	return resp, nil
}

// set serves PUT /resource_providers/{uuid}/inventories.
func (h inventories) set(q *request) (*response, error) {
	uuid := q.path[0]
	body, err := q.readFor(h.ledger, uuid, putInventories)
	if err != nil {
		return nil, err
	}
	var answer inventoriesAnswer
	return answer.dated(q.update(h.ledger, func(t *ledger.Tx) (any, int64, error) {
		p, err := t.SetInventories(uuid, generation(body), q.version.exhausted(), readInventories(body))
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
	body, err := q.readFor(h.ledger, uuid, putInventory)
	if err != nil {
		return nil, err
	}
	spec := readInventory(q.path[1], body)
	return q.update(h.ledger, func(t *ledger.Tx) (any, int64, error) {
		p, err := t.UpdateInventory(uuid, generation(body), q.version.exhausted(), spec)
		return oneInventory{inventoryOf(&spec.Inventory), p.Generation}, p.Changed(), err
	})
}

// delete serves DELETE /resource_providers/{uuid}/inventories/{resource_class}.
func (h inventories) delete(q *request) (*response, error) {
	return q.change(h.ledger, func(t *ledger.Tx) error { return t.DeleteInventory(q.path[0], q.path[1]) })
}
