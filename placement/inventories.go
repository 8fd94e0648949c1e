package placement

import (
	"math"
	"net/http"
	"strconv"
	"strings"

	"croft/placement/internal/pyjson"
	"croft/placement/internal/schema"
)

// What changed in inventories: 1.5 adds DELETE of all, 1.15 headers, 1.26 allows
// reserved to be as much as total.

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

// offer is an inventory by the name of its class, which may not exist.
type offer struct {
	class string
	inventory
}

// readOffer reads a validated inventory; what is not given has its default.
func readOffer(class string, body *pyjson.Object) (offer, error) {
	o := offer{class, inventory{minUnit: 1, maxUnit: math.MaxInt32, stepSize: 1, ratio: 1}}
	for name, field := range map[string]*int64{"total": &o.total, "reserved": &o.reserved,
		"min_unit": &o.minUnit, "max_unit": &o.maxUnit, "step_size": &o.stepSize} {
		if v, ok := body.Get(name); ok {
			*field, _ = pyjson.Int(v)
		}
	}
	if v, ok := body.Get("allocation_ratio"); ok {
		o.ratio, _ = pyjson.Float(v)
	}
	if math.IsNaN(o.ratio) || math.IsInf(o.ratio, 0) {
		return o, badRequest("JSON does not validate: allocation_ratio must be a finite number")
	}
	return o, nil
}

func readOffers(body *pyjson.Object) ([]offer, error) {
	var out []offer
	for i := range body.Len() {
		class, v := body.At(i)
		inner, ok := v.(*pyjson.Object)
		if !ok { // a key that the pattern does not cover
			return nil, badRequest("JSON does not validate: %s is not of type 'object'", pyjson.Repr(v))
		}
		o, err := readOffer(class, inner)
		if err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	return out, nil
}

// checkCapacity refuses offers that nothing could ever be allocated from; reserved
// may take all from 1.26 on.
func checkCapacity(v version, provider string, offers ...offer) error {
	for _, o := range offers {
		words := "greater than or equal to"
		switch c := o.capacity(); {
		case v >= 26 && c >= 0 || v < 26 && c > 0:
			continue
		case v >= 26:
			words = "greater than"
		}
		return badRequest("Invalid inventory for '%s' on resource provider '%s'. The reserved value is %s total.", o.class, provider, words)
	}
	return nil
}

func appendInventory(b []byte, i *inventory) []byte {
	b = strconv.AppendInt(append(b, `"total": `...), i.total, 10)
	b = strconv.AppendInt(append(b, `, "reserved": `...), i.reserved, 10)
	b = strconv.AppendInt(append(b, `, "min_unit": `...), i.minUnit, 10)
	b = strconv.AppendInt(append(b, `, "max_unit": `...), i.maxUnit, 10)
	b = strconv.AppendInt(append(b, `, "step_size": `...), i.stepSize, 10)
	return pyjson.AppendFloat(append(b, `, "allocation_ratio": `...), i.ratio)
}

func (q *request) sendInventory(status int, i *inventory, generation, modified int64) *response {
	b := appendInventory([]byte{'{'}, i)
	if generation != 0 { // the original leaves out a 0
		b = strconv.AppendInt(append(b, `, "resource_provider_generation": `...), generation, 10)
	}
	resp := q.ok(append(b, '}'), modified)
	resp.status = status
	return resp
}

func (q *request) sendInventories(p *providerData, v vocabulary) *response {
	b := strconv.AppendInt([]byte(`{"resource_provider_generation": `), p.generation, 10)
	b = append(b, `, "inventories": {`...)
	for i := range p.inventories {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(pyjson.AppendString(b, v.className(p.inventories[i].class)), ": {"...)
		b = append(appendInventory(b, &p.inventories[i]), '}')
	}
	resp := q.ok(append(b, "}}"...), p.changed())
	if len(p.inventories) == 0 {
		resp.header.Del("Last-Modified") // the original has no time then
	}
	return resp
}

// listInventories is GET /resource_providers/{uuid}/inventories.
func (s *Server) listInventories(q *request) (*response, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	p := s.state.providers[q.path[0]]
	if p == nil {
		return nil, noProviderHere(q.path[0], " ")
	}
	return q.sendInventories(&p.providerData, s.state), nil
}

// noProviderHere is how most sub-resources word it.
func noProviderHere(uuid, blank string) error {
	return notFound("No resource provider with uuid %s found%s: No resource provider with uuid %s found", uuid, blank, uuid)
}

// showInventory is GET /resource_providers/{uuid}/inventories/{resource_class}.
func (s *Server) showInventory(q *request) (*response, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	p := s.state.providers[q.path[0]]
	if p == nil {
		return nil, noProviderHere(q.path[0], " ")
	}
	if c := s.state.classes.byName[q.path[1]]; c != nil {
		if i := p.inventory(c.id); i != nil {
			return q.sendInventory(http.StatusOK, i, p.generation, p.changed()), nil
		}
	}
	return nil, notFound("No inventory of class %s for %s", q.path[1], p.uuid)
}

// createInventory is POST /resource_providers/{uuid}/inventories.
func (s *Server) createInventory(q *request) (*response, error) {
	uuid := q.path[0]
	if err := s.mustExist(q.r.Context(), uuid); err != nil {
		return nil, err
	}
	body, err := q.readObject(postInventory)
	if err != nil {
		return nil, err
	}
	o, err := readOffer(body.String("resource_class"), body)
	if err != nil {
		return nil, err
	}
	refuse := func(reason string) error {
		return badRequest("Unable to create inventory for resource provider %s: %s", uuid, reason)
	}
	if err := checkCapacity(q.version, uuid, o); err != nil {
		return nil, refuse(err.Error())
	}
	var generation, updated int64
	err = s.change(q.r.Context(), func(t *tx) error {
		v, c := t.provider(uuid), t.class(o.class)
		switch {
		case v == nil:
			return noProvider(uuid)
		case c == nil:
			return refuse("No such resource class " + o.class + ".")
		case v.inventory(c.id) != nil:
			return conflict(codeConcurrentUpdate, "Update conflict: Inventory for '%s' on resource provider '%s' already exists.", o.class, uuid)
		}
		t.offer(v, append([]inventory{numbered(o, c)}, v.inventories...))
		generation, updated = v.generation, v.changed()
		return nil
	})
	if err != nil {
		return nil, err
	}
	resp := q.sendInventory(http.StatusCreated, &o.inventory, generation, updated)
	q.location(resp, "/resource_providers/"+uuid+"/inventories/"+o.class)
	return resp, nil
}

// numbered gives an offer the id of its class and keeps the class from going away.
func numbered(o offer, c *nameView) inventory {
	c.hold()
	i := o.inventory
	i.class = c.id
	return i
}

// offer replaces a provider's inventories.
func (t *tx) offer(v *providerView, list []inventory) {
	sortInventories(list)
	v.inventories, v.updated, v.write = list, t.now, true
	v.bump()
}

// setInventories is PUT /resource_providers/{uuid}/inventories.
func (s *Server) setInventories(q *request) (*response, error) {
	uuid := q.path[0]
	if err := s.mustExist(q.r.Context(), uuid); err != nil {
		return nil, err
	}
	body, err := q.readObject(putInventories)
	if err != nil {
		return nil, err
	}
	offers, err := readOffers(body.Object("inventories"))
	if err != nil {
		return nil, err
	}
	var resp *response
	err = s.change(q.r.Context(), func(t *tx) error {
		v := t.provider(uuid)
		if v == nil {
			return noProvider(uuid)
		}
		if !v.isAt(body) {
			return conflict(codeConcurrentUpdate, "resource provider generation conflict")
		}
		if err := checkCapacity(q.version, uuid, offers...); err != nil {
			return badRequest("Unable to update inventory for resource provider %s: %v", uuid, err)
		}
		list, err := t.number(offers)
		if err != nil {
			return badRequest("Unknown resource class in inventory for resource provider %s: %v", uuid, err)
		}
		if err := t.keepsUsed(v, list); err != nil {
			return conflict(codeInventoryInUse, "update conflict: %v", err)
		}
		t.offer(v, list)
		resp = q.sendInventories(&v.providerData, t)
		return nil
	})
	return resp, err
}

// isAt tells whether a body names the provider's generation.
func (v *providerView) isAt(body *pyjson.Object) bool {
	given, _ := body.Get("resource_provider_generation")
	n, ok := pyjson.Int(given)
	return ok && n == v.generation
}

// number finds the classes of offers.
func (t *tx) number(offers []offer) ([]inventory, error) {
	list := make([]inventory, 0, len(offers))
	for _, o := range offers {
		c := t.class(o.class)
		if c == nil {
			return nil, badRequest("No such resource class %s.", o.class)
		}
		list = append(list, numbered(o, c))
	}
	return list, nil
}

// keepsUsed refuses a list that lacks classes of which something is allocated.
func (t *tx) keepsUsed(v *providerView, list []inventory) error {
	kept := map[id]bool{}
	for _, i := range list {
		kept[i.class] = true
	}
	var lost []string
	for _, u := range v.usage {
		if !kept[u.class] {
			lost = append(lost, t.className(u.class))
		}
	}
	if len(lost) > 0 {
		return conflict("", "Inventory for '%s' on resource provider '%s' in use.", strings.Join(lost, ", "), v.uuid)
	}
	return nil
}

// deleteInventories is DELETE /resource_providers/{uuid}/inventories.
func (s *Server) deleteInventories(q *request) (*response, error) {
	err := s.change(q.r.Context(), func(t *tx) error {
		v := t.provider(q.path[0])
		if v == nil {
			return noProvider(q.path[0])
		}
		if err := t.keepsUsed(v, nil); err != nil {
			return conflict(codeInventoryInUse, "%v", err)
		}
		t.offer(v, nil)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &noContent, nil
}

// updateInventory is PUT /resource_providers/{uuid}/inventories/{resource_class}.
func (s *Server) updateInventory(q *request) (*response, error) {
	uuid, class := q.path[0], q.path[1]
	if err := s.mustExist(q.r.Context(), uuid); err != nil {
		return nil, err
	}
	body, err := q.readObject(putInventory)
	if err != nil {
		return nil, err
	}
	o, err := readOffer(class, body)
	if err != nil {
		return nil, err
	}
	var resp *response
	err = s.change(q.r.Context(), func(t *tx) error {
		v := t.provider(uuid)
		if v == nil {
			return noProvider(uuid)
		}
		if !v.isAt(body) {
			return conflict(codeConcurrentUpdate, "resource provider generation conflict")
		}
		if err := checkCapacity(q.version, uuid, o); err != nil {
			return badRequest("Unable to update inventory for resource provider %s: %v", uuid, err)
		}
		c := t.class(class)
		if c == nil {
			return notFound("No such resource class %s.", class)
		}
		var list []inventory
		for _, i := range v.inventories {
			if i.class == c.id {
				i = numbered(o, c)
			}
			list = append(list, i)
		}
		if v.inventory(c.id) == nil {
			return badRequest("No inventory record with resource class for resource provider %s: No inventory of class %s found.", uuid, class)
		}
		t.offer(v, list)
		resp = q.sendInventory(http.StatusOK, &o.inventory, v.generation, v.changed())
		return nil
	})
	return resp, err
}

// deleteInventory is DELETE /resource_providers/{uuid}/inventories/{resource_class}.
func (s *Server) deleteInventory(q *request) (*response, error) {
	uuid, class := q.path[0], q.path[1]
	err := s.change(q.r.Context(), func(t *tx) error {
		v := t.provider(uuid)
		if v == nil {
			return noProvider(uuid)
		}
		missing := "No such resource class " + class + "."
		if c := t.class(class); c != nil {
			missing = "No inventory of class " + class + " found for delete"
			if v.used(c.id) > 0 {
				return conflict(codeConcurrentUpdate, "Unable to delete inventory of class %s: Inventory for '%s' on resource provider '%s' in use.", class, class, uuid)
			}
			var list []inventory
			for _, i := range v.inventories {
				if i.class != c.id {
					list = append(list, i)
				}
			}
			if len(list) < len(v.inventories) {
				t.offer(v, list)
				return nil
			}
		}
		return notFound("No inventory of class %s found for delete: %s", class, missing)
	})
	if err != nil {
		return nil, err
	}
	return &noContent, nil
}
