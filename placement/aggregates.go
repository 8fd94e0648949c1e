package placement

import (
	"strconv"

	"croft/placement/internal/pyjson"
	"croft/placement/internal/schema"
)

// What changed in aggregates: up to 1.18 the body of PUT is a list and no generation
// is seen, checked or counted; from 1.19 on all three.

const aggregateList = `{"type": "array", "items": {"type": "string", "format": "uuid"}, "uniqueItems": true}`

var (
	putAggregates1  = schema.Must(aggregateList)
	putAggregates19 = schema.Must(`{"type": "object", "properties": {"aggregates": ` + aggregateList + `,
		"resource_provider_generation": {"type": "integer"}},
		"required": ["aggregates", "resource_provider_generation"], "additionalProperties": false}`)
)

func (q *request) sendAggregates(p *providerData) *response {
	b := appendStrings([]byte(`{"aggregates": `), p.aggregates)
	if q.version >= 19 {
		b = strconv.AppendInt(append(b, `, "resource_provider_generation": `...), p.generation, 10)
	}
	return q.ok(append(b, '}'), 0)
}

func appendStrings(b []byte, list []string) []byte {
	b = append(b, '[')
	for i, s := range list {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = pyjson.AppendString(b, s)
	}
	return append(b, ']')
}

// showAggregates is GET /resource_providers/{uuid}/aggregates.
func (s *Server) showAggregates(q *request) (*response, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	p, err := s.state.get(q.path[0])
	if err != nil {
		return nil, err
	}
	return q.sendAggregates(&p.providerData), nil
}

// setAggregates is PUT /resource_providers/{uuid}/aggregates.
func (s *Server) setAggregates(q *request) (*response, error) {
	uuid := q.path[0]
	if err := s.mustExist(q.r.Context(), uuid); err != nil {
		return nil, err
	}
	want := putAggregates1
	if q.version >= 19 {
		want = putAggregates19
	}
	body, err := q.readJSON(want)
	if err != nil {
		return nil, err
	}
	list := body
	if o, ok := body.(*pyjson.Object); ok {
		list, _ = o.Get("aggregates")
	}
	var aggregates []string
	for _, a := range list.([]any) {
		aggregates = append(aggregates, a.(string))
	}
	var resp *response
	err = s.change(q.r.Context(), func(t *tx) error {
		v := t.whole(uuid)
		if v == nil {
			return noProvider(uuid)
		}
		if o, ok := body.(*pyjson.Object); ok {
			if !v.isAt(o) {
				return conflict(codeConcurrentUpdate, "Resource provider's generation already changed. Please update the generation and try again.")
			}
			v.updated = t.now
			v.bump()
		}
		v.aggregates, v.write = aggregates, true
		resp = q.sendAggregates(&v.providerData)
		return nil
	})
	return resp, err
}
