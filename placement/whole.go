package placement

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"croft/placement/internal/pyjson"
	"croft/placement/internal/schema"
)

// What the API has no request for, and croft's own client asks often: all providers with
// all there is of each, and one provider brought to what it should be, in one
// transaction, which writes nothing where it is so already (204). The paths begin with /croft; other Placements answer 404 there.

var putWhole = schema.Must(`{"type": "object", "properties": {
	"name": {"type": "string", "minLength": 1, "maxLength": 200},
	"inventories": {"type": "object", "patternProperties": {"` + classPattern + `": {"type": "object",
		"properties": {` + inventoryProperties + `}, "required": ["total"], "additionalProperties": false}}},
	"traits": {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 255}},
	"aggregates": ` + aggregateList + `},
	"required": ["name", "inventories", "traits", "aggregates"], "additionalProperties": false}`)

// listWhole is GET /croft/providers.
func (s *Server) listWhole(q *request) (*response, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	b := []byte(`{"providers": [`)
	for i, p := range s.state.all {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = s.state.appendWhole(b, p)
	}
	return q.ok(append(b, "]}"...), 0), nil
}

func (s *state) appendWhole(b []byte, p *provider) []byte {
	b = pyjson.AppendString(append(b, `{"uuid": `...), p.uuid)
	b = pyjson.AppendString(append(b, `, "name": `...), p.name)
	b = pyjson.AppendString(append(b, `, "root_provider_uuid": `...), p.root.uuid)
	b = strconv.AppendInt(append(b, `, "generation": `...), p.generation, 10)
	b = append(b, `, "inventories": {`...)
	used := make([]amount, len(p.inventories))
	for i := range p.inventories {
		if i > 0 {
			b = append(b, ", "...)
		}
		inv := &p.inventories[i]
		b = append(pyjson.AppendString(b, s.className(inv.class)), ": {"...)
		b = append(appendInventory(b, inv), '}')
		used[i] = amount{inv.class, p.used(inv.class)}
	}
	b = s.appendAmounts(append(b, `}, "usages": {`...), used)
	names := make([]string, len(p.traits))
	for i, t := range p.traits {
		names[i] = s.traitName(t)
	}
	b = appendStrings(append(b, `}, "traits": `...), names)
	b = appendStrings(append(b, `, "aggregates": `...), p.aggregates)
	return append(b, '}')
}

// putWholeProvider is PUT /croft/providers/{uuid}. It creates the provider, and custom
// classes and traits that are missing, and leaves out standard traits that it does not
// know. Answered are 201 where it was made, 200 where it was changed.
func (s *Server) putWholeProvider(q *request) (*response, error) {
	uuid, valid := schema.UUID(q.path[0])
	if !valid {
		return nil, badRequest("%s is not a UUID", pyjson.Repr(q.path[0]))
	}
	body, err := q.readObject(putWhole)
	if err != nil {
		return nil, err
	}
	offers, err := readOffers(body.Object("inventories"))
	if err != nil {
		return nil, err
	}
	if err := checkCapacity(q.version, uuid, offers...); err != nil {
		return nil, badRequest("Unable to update inventory for resource provider %s: %v", uuid, err)
	}
	want := wholeProvider{name: body.String("name"), offers: offers, traits: stringsOf(body, "traits"), aggregates: stringsOf(body, "aggregates")}
	status := http.StatusNoContent
	err = s.change(q.r.Context(), func(t *tx) error {
		status = http.StatusOK
		v := t.whole(uuid)
		if v == nil {
			status = http.StatusCreated
			if _, err := t.insertProvider(uuid, want.name, ""); err != nil {
				return err
			}
			v = t.view(uuid)
		}
		err := t.bring(v, want)
		if t.writes() == 0 {
			status = http.StatusNoContent
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &response{status: status}, nil
}

func stringsOf(body *pyjson.Object, key string) []string {
	given, _ := body.Get(key)
	var list []string
	for _, v := range given.([]any) {
		list = append(list, v.(string))
	}
	return list
}

// wholeProvider is what a provider is to be.
type wholeProvider struct {
	name       string
	offers     []offer
	traits     []string
	aggregates []string
}

// bring makes a provider what it is to be.
func (t *tx) bring(v *providerView, want wholeProvider) error {
	if v.name != want.name {
		if t.owner(want.name) != "" {
			return conflict(codeDuplicateName, "Conflicting resource provider %s already exists.", want.name)
		}
		t.rename(v, want.name)
		v.updated = t.now
	}
	if !t.offers(v, want.offers) {
		list, err := t.inventoriesOf(want.offers)
		if err != nil {
			return err
		}
		if err := t.keepsUsed(v, list); err != nil {
			return conflict(codeInventoryInUse, "update conflict: %v", err)
		}
		t.offer(v, list)
	}
	if err := t.bringTraits(v, want.traits); err != nil {
		return err
	}
	slices.Sort(want.aggregates)
	if !slices.Equal(want.aggregates, slices.Sorted(slices.Values(v.aggregates))) {
		v.aggregates, v.updated, v.write = want.aggregates, t.now, true
		v.bump()
	}
	return nil
}

// inventoriesOf finds the classes of offers, and makes custom ones.
func (t *tx) inventoriesOf(offers []offer) ([]inventory, error) {
	for _, o := range offers {
		if t.class(o.class) != nil || !strings.HasPrefix(o.class, "CUSTOM_") {
			continue
		}
		if len(o.class) > 255 {
			return nil, badRequest("The class %.20s... is longer than 255 characters", o.class)
		}
		if err := t.roomForClass(); err != nil {
			return nil, err
		}
		t.createClass(o.class)
	}
	list, err := t.number(offers)
	if err != nil {
		return nil, badRequest("Unknown resource class in inventory: %v", err)
	}
	return list, nil
}

// offers tells whether a provider has these inventories and no others.
func (t *tx) offers(v *providerView, offers []offer) bool {
	for _, o := range offers {
		c := t.class(o.class)
		if c == nil {
			return false
		}
		o.inventory.class = c.id
		if have := v.inventory(c.id); have == nil || *have != o.inventory {
			return false
		}
	}
	return len(offers) == len(v.inventories)
}

// bringTraits gives a provider these traits, and makes custom ones.
func (t *tx) bringTraits(v *providerView, names []string) error {
	var ids []id
	var held []*nameView
	for _, name := range names {
		trait := t.trait(name)
		if trait == nil && customTrait.MatchString(name) {
			if err := t.roomForTrait(); err != nil {
				return err
			}
			t.createTrait(name)
			trait = t.trait(name)
		}
		if trait != nil {
			ids, held = insertID(ids, trait.id), append(held, trait)
		}
	}
	if slices.Equal(ids, v.traits) {
		return nil
	}
	for _, trait := range held {
		trait.hold()
	}
	t.setTraits(v, ids)
	return nil
}
