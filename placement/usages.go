package placement

import (
	"encoding/json"

	"croft/placement/internal/schema"
	"croft/placement/ledger"
)

// Microversions of usages: /usages exists from 1.9 on; 1.38 groups them by consumer type and adds the number of
// consumers.

const usageProperties = `"project_id": {"type": "string", "minLength": 1, "maxLength": 255},
	"user_id": {"type": "string", "minLength": 1, "maxLength": 255}`

var (
	usages9 = schema.Must(`{"type": "object", "properties": {` + usageProperties + `},
		"required": ["project_id"], "additionalProperties": false}`)
	usages38 = schema.Must(`{"type": "object", "properties": {` + usageProperties + `,
		"consumer_type": {"type": "string", "pattern": "^[A-Z0-9_]+$|^all|^unknown$", "minLength": 1, "maxLength": 255}},
		"required": ["project_id"], "additionalProperties": false}`)
)

// unknownType stands for consumers without a type, allTypes for the sum of all types.
const (
	unknownType = "unknown"
	allTypes    = "all"
)

// usages handles /usages, and /resource_providers/{uuid}/usages.
type usages struct{ ledger *ledger.Ledger }

// ofProvider serves GET /resource_providers/{uuid}/usages.
func (h usages) ofProvider(q *request) (*response, error) {
	return q.view(h.ledger, func(st *ledger.State) (any, int64, error) {
		p := st.Provider(q.path[0])
		if p == nil {
			return nil, 0, noProviderHere(q.path[0], "")
		}
		return struct {
			Generation int64            `json:"resource_provider_generation"`
			Usages     map[string]int64 `json:"usages"`
		}{p.Generation, usagesOf(&p.ProviderData, st)}, 0, nil
	})
}

// usagesOf returns the usage of each class in a provider's inventory.
func usagesOf(p *ledger.ProviderData, v ledger.Vocabulary) map[string]int64 {
	out := make(map[string]int64, len(p.Inventories))
	for i := range p.Inventories {
		class := p.Inventories[i].Class
		out[v.ClassName(class)] = p.Used(class)
	}
	return out
}

// show serves GET /usages.
func (h usages) show(q *request) (*response, error) {
	want := usages9
	if q.version >= 38 {
		want = usages38
	}
	if err := q.query.validate(want); err != nil {
		return nil, err
	}
	project, _ := q.query.last("project_id")
	user, byUser := q.query.last("user_id")
	only, byType := q.query.last("consumer_type")
	return q.view(h.ledger, func(st *ledger.State) (any, int64, error) {
		sums := map[string]*typeSum{}
		for c := range st.ProjectConsumers(project) {
			if byUser && c.User != user {
				continue
			}
			group := c.Type
			switch {
			case q.version < 38 || only == allTypes:
				group = allTypes
			case group == "":
				group = unknownType
			}
			if byType && only != allTypes && group != only {
				continue
			}
			if sums[group] == nil {
				sums[group] = &typeSum{amounts: map[string]int64{}}
			}
			sums[group].add(c, st)
		}
		if q.version >= 38 {
			return map[string]any{"usages": sums}, 0, nil
		}
		all := map[string]int64{}
		if sums[allTypes] != nil {
			all = sums[allTypes].amounts
		}
		return map[string]any{"usages": all}, 0, nil
	})
}

// typeSum is the usage by consumers of one type, by class, and their number.
type typeSum struct {
	amounts   map[string]int64
	consumers int64
}

func (t *typeSum) add(c *ledger.Consumer, v ledger.Vocabulary) {
	for _, a := range c.Allocations {
		t.amounts[v.ClassName(a.Class)] += a.N
	}
	t.consumers++
}

// MarshalJSON implements json.Marshaler.
func (t *typeSum) MarshalJSON() ([]byte, error) {
	t.amounts["consumer_count"] = t.consumers // no clash: class names are upper case
	return json.Marshal(t.amounts)
}
