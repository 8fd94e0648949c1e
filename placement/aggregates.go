package placement

import (
	"croft/placement/internal/schema"
	"croft/placement/ledger"
)

// Microversions of aggregates: up to 1.18 the body of PUT is a list and the generation is ignored; from 1.19 on it is
// shown, compared and incremented.

const aggregateList = `{"type": "array", "items": {"type": "string", "format": "uuid"}, "uniqueItems": true}`

var (
	putAggregates1  = schema.Must(aggregateList)
	putAggregates19 = schema.Must(`{"type": "object", "properties": {"aggregates": ` + aggregateList + `,
		"resource_provider_generation": {"type": "integer"}},
		"required": ["aggregates", "resource_provider_generation"], "additionalProperties": false}`)
)

type aggregatesAnswer struct {
	Aggregates []string `json:"aggregates"`
	Generation *int64   `json:"resource_provider_generation,omitempty"`
}

func (q *request) aggregates(p *ledger.ProviderData) aggregatesAnswer {
	a := aggregatesAnswer{Aggregates: append([]string{}, p.Aggregates...)}
	if q.version >= 19 {
		generation := p.Generation
		a.Generation = &generation
	}
	return a
}

// aggregates handles /resource_providers/{uuid}/aggregates.
type aggregates struct{ ledger *ledger.Ledger }

// show serves GET /resource_providers/{uuid}/aggregates.
func (h aggregates) show(q *request) (*response, error) {
	return q.view(h.ledger, func(st *ledger.State) (any, int64, error) {
		p, err := st.FindProvider(q.path[0])
		if err != nil {
			return nil, 0, err
		}
		return q.aggregates(&p.ProviderData), 0, nil
	})
}

// readAggregates reads the body of PUT. The generation is nil up to 1.18.
func (q *request) readAggregates() ([]string, *int64, error) {
	if q.version < 19 {
		body, err := q.read(putAggregates1)
		return body.Texts(), nil, err
	}
	body, err := q.read(putAggregates19)
	n := generation(body)
	return body.Get("aggregates").Texts(), &n, err
}

// set serves PUT /resource_providers/{uuid}/aggregates.
func (h aggregates) set(q *request) (*response, error) {
	uuid := q.path[0]
	if err := h.ledger.Exists(q.r.Context(), uuid); err != nil {
		return nil, err
	}
	aggregates, generation, err := q.readAggregates()
	if err != nil {
		return nil, err
	}
	return q.update(h.ledger, func(t *ledger.Tx) (any, int64, error) {
		p, err := t.SetAggregates(uuid, generation, aggregates)
		return q.aggregates(&p), 0, err
	})
}
