package placement

import (
	"croft/placement/internal/pyjson"
	"croft/placement/internal/schema"
)

// POST /reshaper exists from 1.30 on; its allocations have the form that POST
// /allocations has in the same version: 1.34 brings mappings, 1.38 consumer types.

func reshaperSchema(v version) *schema.Schema {
	return schema.Must(`{"type": "object", "properties": {
		"inventories": {"type": "object", "patternProperties": {"` + uuidPattern + `": ` + putInventoriesText + `},
			"minProperties": 1, "additionalProperties": false},
		"allocations": ` + allocationsText(v, 0) + `},
		"required": ["inventories", "allocations"], "additionalProperties": false}`)
}

var reshaperSchemas = []versioned{{38, reshaperSchema(38)}, {34, reshaperSchema(34)}, {30, reshaperSchema(30)}}

// reshaped is what a provider is to offer.
type reshaped struct {
	provider string
	body     *pyjson.Object
	offers   []offer
}

// reshape is POST /reshaper: inventories and allocations change at once, or not at all.
func (s *Server) reshape(q *request) (*response, error) {
	body, err := q.readObject(pick(q.version, reshaperSchemas))
	if err != nil {
		return nil, err
	}
	var providers []reshaped
	inventories := body.Object("inventories")
	for i := range inventories.Len() {
		uuid, v := inventories.At(i)
		r := reshaped{provider: uuid, body: v.(*pyjson.Object)}
		if r.offers, err = readOffers(r.body.Object("inventories")); err != nil {
			return nil, err
		}
		providers = append(providers, r)
	}
	claims := readClaims(body.Object("allocations"))
	if err := s.change(q.r.Context(), func(t *tx) error { return t.reshape(q.version, providers, claims) }); err != nil {
		return nil, err
	}
	return &noContent, nil
}

func malformed(reason string) error { return badRequest("malformed reshaper data: %s", reason) }

// reshape goes by way of inventories that hold the old and the new, so that the
// allocations can move between them.
func (t *tx) reshape(v version, providers []reshaped, claims []claim) error {
	for _, r := range providers {
		p := t.provider(r.provider)
		if p == nil {
			return badValue(codeProviderNotFound, "Resource provider %s in inventories not found: No resource provider with uuid %s found", r.provider, r.provider)
		}
		if !p.isAt(r.body) {
			given, _ := r.body.Get("resource_provider_generation")
			return conflict(codeConcurrentUpdate, "resource provider generation conflict for provider %s: actual: %d, given: %s", r.provider, p.generation, pyjson.Repr(given))
		}
	}
	consumers, err := t.openClaims(v, claims)
	if err != nil {
		return err
	}
	final := make([][]inventory, len(providers))
	for i, r := range providers {
		if final[i], err = t.number(r.offers); err != nil {
			return malformed(err.Error())
		}
		if len(final[i]) > 0 {
			p := t.provider(r.provider)
			t.offer(p, union(p.inventories, final[i]))
		}
	}
	if err := t.settle(malformed, claims, consumers); err != nil {
		return err
	}
	for i, r := range providers {
		p := t.provider(r.provider)
		if err := t.keepsUsed(p, final[i]); err != nil {
			return conflict(codeInventoryInUse, "update conflict: %v", err)
		}
		t.offer(p, final[i])
	}
	return nil
}

// union is the new inventories and the old ones of other classes.
func union(old, fresh []inventory) []inventory {
	list := append([]inventory(nil), fresh...)
	for _, i := range old {
		p := providerData{inventories: fresh}
		if p.inventory(i.class) == nil {
			list = append(list, i)
		}
	}
	return list
}
