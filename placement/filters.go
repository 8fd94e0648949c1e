package placement

import (
	"croft/placement/internal/schema"
	"croft/placement/ledger"
)

const treeProperty = `, "in_tree": {"type": "string", "format": "uuid"}`

// Filters of GET /resource_providers: 1.3 adds member_of, 1.4 resources, 1.14 in_tree, 1.18 required.
var providerFilters = []versioned{
	{18, filterSchema(`, "member_of": {"type": "string"}, "resources": {"type": "string"}` + treeProperty +
		`, "required": {"type": "string"}`)},
	{14, filterSchema(`, "member_of": {"type": "string"}, "resources": {"type": "string"}` + treeProperty)},
	{4, filterSchema(`, "member_of": {"type": "string"}, "resources": {"type": "string"}`)},
	{3, filterSchema(`, "member_of": {"type": "string"}`)},
	{0, filterSchema("")},
}

func filterSchema(more string) *schema.Schema {
	return schema.Must(`{"type": "object", "properties": {"name": {"type": "string"},
		"uuid": {"type": "string", "format": "uuid"}` + more + `}, "additionalProperties": false}`)
}

// readFilter reads the parameters of GET /resource_providers.
func (q *request) readFilter() (f ledger.Filter, err error) {
	if err := q.query.validate(pick(q.version, providerFilters)); err != nil {
		return f, err
	}
	if f.Aggregates, err = parseAggregates(q.version, "", q.query.all("member_of")); err != nil {
		return f, err
	}
	if f.Traits, err = parseTraits(q.version, q.query.all("required")); err != nil {
		return f, err
	}
	f.UUID, _ = q.query.last("uuid")
	f.Name, _ = q.query.last("name")
	f.Tree, _ = q.query.last("in_tree")
	if value, ok := q.query.last("resources"); ok {
		f.Resources, err = parseResources(value)
	}
	return f, err
}

// list serves GET /resource_providers.
func (h providers) list(q *request) (*response, error) {
	f, err := q.readFilter()
	if err != nil {
		return nil, err
	}
	return q.view(h.ledger, func(st *ledger.State) (any, int64, error) {
		found, err := st.Filter(f)
		if err != nil {
			return nil, 0, err
		}
		list := make([]providerAnswer, len(found))
		var modified int64
		for i, p := range found {
			list[i] = q.provider(&p.ProviderData, p.Root().UUID)
			modified = max(modified, p.Changed())
		}
		return struct {
			Providers []providerAnswer `json:"resource_providers"`
		}{list}, modified, nil
	})
}
