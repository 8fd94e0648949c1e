package placement

import (
	"croft/placement/internal/schema"
	"croft/placement/ledger"
)

// Microversions of POST /reshaper: it exists from 1.30 on. Its allocations have the form of POST /allocations in the
// same version: 1.34 adds mappings, 1.38 consumer types.

func reshaperSchema(v version) *schema.Schema {
	return schema.Must(`{"type": "object", "properties": {
		"inventories": {"type": "object", "patternProperties": {"` + uuidPattern + `": ` + putInventoriesText + `},
			"minProperties": 1, "additionalProperties": false},
		"allocations": ` + allocationsText(v, 0) + `},
		"required": ["inventories", "allocations"], "additionalProperties": false}`)
}

var reshaperSchemas = []versioned{{38, reshaperSchema(38)}, {34, reshaperSchema(34)}, {30, reshaperSchema(30)}}

// reshaper handles /reshaper.
type reshaper struct{ ledger *ledger.Ledger }

// reshape serves POST /reshaper: inventories and allocations change together or not at all.
func (h reshaper) reshape(q *request) (*response, error) {
	body, err := q.read(pick(q.version, reshaperSchemas))
	if err != nil {
		return nil, err
	}
	var providers []ledger.Reshaped
	for _, p := range body.Get("inventories").Parts() {
		providers = append(providers, ledger.Reshaped{Provider: p.Name, Generation: generation(p.Value),
			Inventories: readInventories(p.Value)})
	}
	rules, claims := q.claimRules(nil), readClaims(body.Get("allocations"))
	return q.change(h.ledger, func(t *ledger.Tx) error { return t.Reshape(rules, providers, claims) })
}
