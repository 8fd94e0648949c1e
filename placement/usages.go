package placement

import (
	"maps"
	"slices"
	"strconv"

	"croft/placement/internal/pyjson"
	"croft/placement/internal/schema"
)

// What changed in usages: /usages exists from 1.9 on; 1.38 groups them by consumer
// type and counts consumers.

const usageProperties = `"project_id": {"type": "string", "minLength": 1, "maxLength": 255},
	"user_id": {"type": "string", "minLength": 1, "maxLength": 255}`

var (
	usages9  = schema.Must(`{"type": "object", "properties": {` + usageProperties + `}, "required": ["project_id"], "additionalProperties": false}`)
	usages38 = schema.Must(`{"type": "object", "properties": {` + usageProperties + `,
		"consumer_type": {"type": "string", "pattern": "^[A-Z0-9_]+$|^all|^unknown$", "minLength": 1, "maxLength": 255}},
		"required": ["project_id"], "additionalProperties": false}`)
)

// unknownType is how a consumer without a type is shown, allTypes the sum of all.
const (
	unknownType = "unknown"
	allTypes    = "all"
)

// providerUsages is GET /resource_providers/{uuid}/usages.
func (s *Server) providerUsages(q *request) (*response, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	p := s.state.providers[q.path[0]]
	if p == nil {
		return nil, noProviderHere(q.path[0], "")
	}
	used := make([]amount, len(p.inventories))
	for i, inv := range p.inventories {
		used[i] = amount{inv.class, p.used(inv.class)}
	}
	b := strconv.AppendInt([]byte(`{"resource_provider_generation": `), p.generation, 10)
	b = s.state.appendAmounts(append(b, `, "usages": {`...), used)
	return q.ok(append(b, "}}"...), 0), nil
}

// appendAmounts writes "VCPU": 1, "DISK_GB": 2.
func (s *state) appendAmounts(b []byte, list []amount) []byte {
	for i, a := range list {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(pyjson.AppendString(b, s.classes.name(a.class)), ": "...)
		b = strconv.AppendInt(b, a.n, 10)
	}
	return b
}

// usages is GET /usages.
func (s *Server) usages(q *request) (*response, error) {
	want := usages9
	if q.version >= 38 {
		want = usages38
	}
	if err := q.query.validate(want); err != nil {
		return nil, err
	}
	project, _ := q.query.last("project_id")
	user, byUser := q.query.last("user_id")
	kind, byKind := q.query.last("consumer_type")
	s.mu.RLock()
	defer s.mu.RUnlock()
	var sums typeSums
	for c := range s.state.projects[project] {
		if byUser && c.user != user {
			continue
		}
		group := c.kind
		switch {
		case q.version < 38 || kind == allTypes:
			group = allTypes
		case group == "":
			group = unknownType
		}
		if byKind && kind != allTypes && group != kind {
			continue
		}
		sums.add(group, c.allocations)
	}
	if q.version < 38 {
		b := s.state.appendAmounts([]byte(`{"usages": {`), sums[allTypes].amounts)
		return q.ok(append(b, "}}"...), 0), nil
	}
	b := []byte(`{"usages": {`)
	for i, name := range slices.Sorted(maps.Keys(sums)) {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(pyjson.AppendString(b, name), ": {"...)
		b = s.state.appendAmounts(b, sums[name].amounts)
		b = strconv.AppendInt(append(b, `, "consumer_count": `...), int64(sums[name].consumers), 10)
		b = append(b, '}')
	}
	return q.ok(append(b, "}}"...), 0), nil
}

// typeSums is what consumers have, by consumer type.
type typeSums map[string]typeSum

type typeSum struct {
	amounts   []amount
	consumers int
}

func (t *typeSums) add(kind string, allocations []allocation) {
	if *t == nil {
		*t = typeSums{}
	}
	var p providerData // for the arithmetic
	sum := (*t)[kind]
	p.usage = sum.amounts
	for _, a := range allocations {
		p.use(a.class, a.n)
	}
	(*t)[kind] = typeSum{p.usage, sum.consumers + 1}
}
