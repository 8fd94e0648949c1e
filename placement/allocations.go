package placement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"croft/placement/internal/pyjson"
	"croft/placement/internal/schema"
)

// The bodies of PUT /allocations/{uuid}: up to 1.11 allocations are a list, from 1.8
// on project and user are required, from 1.12 on allocations are an object, 1.28
// brings the consumer's generation and allows none, 1.34 mappings, 1.38 its type.
// POST /allocations exists from 1.13 on; its values have the same form, and may
// hold no allocations from the beginning.

const (
	amountsSchema = `{"type": "object", "minProperties": 1, "patternProperties": {"^[A-Z0-9_]+$": {"type": "integer", "minimum": 1}},
		"additionalProperties": false}`
	allocationList = `{"type": "array", "minItems": 1, "items": {"type": "object", "properties": {
		"resource_provider": {"type": "object", "properties": {"uuid": {"type": "string", "format": "uuid"}},
			"additionalProperties": false, "required": ["uuid"]},
		"resources": ` + amountsSchema + `}, "required": ["resource_provider", "resources"], "additionalProperties": false}}`
	ownerProperties = `"project_id": {"type": "string", "minLength": 1, "maxLength": 255},
		"user_id": {"type": "string", "minLength": 1, "maxLength": 255}`
	generationProperty = `, "consumer_generation": {"type": ["integer", "null"], "additionalProperties": false}`
	mappingsProperty   = `, "mappings": {"type": "object", "minProperties": 1, "patternProperties": {"[a-zA-Z0-9_-]{1,64}":
		{"type": "array", "minItems": 1, "items": {"type": "string", "format": "uuid"}}}}`
	typeProperty = `, "consumer_type": {"type": "string", "pattern": "^[A-Z0-9_]+$", "minLength": 1, "maxLength": 255}`
	uuidPattern  = `^[0-9a-fA-F-]{36}$`
)

// allocationText is the schema of one consumer's allocations from 1.12 on.
func allocationText(v version, atLeast int) string {
	properties, required := ownerProperties, `"allocations", "project_id", "user_id"`
	if v >= 28 {
		properties, required = properties+generationProperty, required+`, "consumer_generation"`
	}
	if v >= 34 {
		properties += mappingsProperty
	}
	if v >= 38 {
		properties, required = properties+typeProperty, required+`, "consumer_type"`
	}
	return fmt.Sprintf(`{"type": "object", "properties": {"allocations": {"type": "object", "minProperties": %d,
		"patternProperties": {"%s": {"type": "object", "properties": {"generation": {"type": "integer"}, "resources": %s},
			"required": ["resources"], "additionalProperties": false}}, "additionalProperties": false}, %s},
		"additionalProperties": false, "required": [%s]}`, atLeast, uuidPattern, amountsSchema, properties, required)
}

// allocationsText is the schema of several consumers' allocations.
func allocationsText(v version, atLeast int) string {
	return fmt.Sprintf(`{"type": "object", "minProperties": %d, "additionalProperties": false, "patternProperties": {"%s": %s}}`,
		atLeast, uuidPattern, allocationText(v, 0))
}

// versioned is a schema that is valid from a version on.
type versioned struct {
	since  version
	schema *schema.Schema
}

// pick returns the newest of a list, newest first, that a version has.
func pick(v version, list []versioned) *schema.Schema {
	for _, e := range list {
		if v >= e.since {
			return e.schema
		}
	}
	return list[len(list)-1].schema
}

var (
	putAllocations = []versioned{
		{38, schema.Must(allocationText(38, 0))}, {34, schema.Must(allocationText(34, 0))},
		{28, schema.Must(allocationText(28, 0))}, {12, schema.Must(allocationText(12, 1))},
		{8, schema.Must(`{"type": "object", "properties": {"allocations": ` + allocationList + `, ` + ownerProperties + `},
			"required": ["allocations", "project_id", "user_id"], "additionalProperties": false}`)},
		{0, schema.Must(`{"type": "object", "properties": {"allocations": ` + allocationList + `},
			"required": ["allocations"], "additionalProperties": false}`)},
	}
	postAllocations = []versioned{
		{38, schema.Must(allocationsText(38, 1))}, {34, schema.Must(allocationsText(34, 1))},
		{28, schema.Must(allocationsText(28, 1))}, {13, schema.Must(allocationsText(13, 1))},
	}
)

// incomplete owns what is allocated without naming project and user.
const incomplete = "00000000-0000-0000-0000-000000000000"

// claim is what a request wants one consumer to have.
type claim struct {
	consumer      string
	project, user string
	kind          string
	generation    any // int64, or nil: it does not exist yet
	shares        []share
}

// share is a part of a claim: so much of a class from a provider.
type share struct {
	provider string
	want
}

// readClaim reads a validated body.
func readClaim(consumer string, body *pyjson.Object) claim {
	c := claim{consumer: consumer, project: incomplete, user: incomplete, kind: body.String("consumer_type")}
	if p := body.String("project_id"); p != "" {
		c.project, c.user = p, body.String("user_id")
	}
	c.generation, _ = body.Get("consumer_generation")
	allocations, _ := body.Get("allocations")
	switch list := allocations.(type) {
	case *pyjson.Object:
		for i := range list.Len() {
			provider, v := list.At(i)
			c.add(provider, v.(*pyjson.Object))
		}
	case []any:
		byProvider := &pyjson.Object{} // of a provider given twice the last counts
		for _, v := range list {
			o := v.(*pyjson.Object)
			byProvider.Set(o.Object("resource_provider").String("uuid"), o)
		}
		for i := range byProvider.Len() {
			provider, v := byProvider.At(i)
			c.add(provider, v.(*pyjson.Object))
		}
	}
	return c
}

func (c *claim) add(provider string, body *pyjson.Object) {
	resources := body.Object("resources")
	for i := range resources.Len() {
		class, v := resources.At(i)
		n, ok := pyjson.Int(v)
		if !ok {
			n = 1 << 62 // more than anybody has
		}
		c.shares = append(c.shares, share{provider, want{class, n}})
	}
}

// setAllocations is PUT /allocations/{consumer_uuid}.
func (s *Server) setAllocations(q *request) (*response, error) {
	consumer, ok := schema.UUID(q.path[0])
	if !ok {
		return nil, badRequest("Malformed consumer_uuid: %s", q.path[0])
	}
	body, err := q.readObject(pick(q.version, putAllocations))
	if err != nil {
		return nil, err
	}
	c := readClaim(consumer, body)
	refuse := func(reason string) error {
		return badRequest("Unable to allocate inventory for consumer %s: %s", consumer, reason)
	}
	if err := s.change(q.r.Context(), func(t *tx) error { return t.claim(q.version, refuse, c) }); err != nil {
		return nil, err
	}
	return &noContent, nil
}

// manageAllocations is POST /allocations.
func (s *Server) manageAllocations(q *request) (*response, error) {
	body, err := q.readObject(pick(q.version, postAllocations))
	if err != nil {
		return nil, err
	}
	claims := readClaims(body)
	refuse := func(reason string) error { return badRequest("Unable to allocate inventory %s", reason) }
	if err := s.change(q.r.Context(), func(t *tx) error { return t.claim(q.version, refuse, claims...) }); err != nil {
		return nil, err
	}
	return &noContent, nil
}

func readClaims(body *pyjson.Object) []claim {
	var claims []claim
	for i := range body.Len() {
		consumer, v := body.At(i)
		claims = append(claims, readClaim(consumer, v.(*pyjson.Object)))
	}
	return claims
}

// claim makes all claims true, or none: each replaces what its consumer has. refuse
// words that a resource class does not exist.
func (t *tx) claim(v version, refuse func(string) error, claims ...claim) error {
	consumers, err := t.openClaims(v, claims)
	if err != nil {
		return err
	}
	return t.settle(refuse, claims, consumers)
}

// openClaims checks consumers and providers.
func (t *tx) openClaims(v version, claims []claim) ([]*consumerView, error) {
	consumers := make([]*consumerView, len(claims))
	for i, c := range claims {
		var err error
		if consumers[i], err = t.openClaim(v, c); err != nil {
			return nil, err
		}
	}
	for _, c := range claims {
		for _, sh := range c.shares {
			if t.provider(sh.provider) == nil {
				return nil, badRequest("Allocation for resource provider '%s' that does not exist.", sh.provider)
			}
		}
	}
	return consumers, nil
}

// openClaim finds or makes the consumer and brings it to what the claim says of it.
func (t *tx) openClaim(v version, c claim) (*consumerView, error) {
	view := t.consumerView(c.consumer)
	if v >= 28 {
		given, named := pyjson.Int(c.generation)
		switch {
		case view.exists && (!named || given != view.generation):
			return nil, conflict(codeConcurrentUpdate, "consumer generation conflict - expected %d but got %s", view.generation, pyjson.Repr(c.generation))
		case !view.exists && c.generation != nil:
			return nil, conflict(codeConcurrentUpdate, "consumer generation conflict - expected null but got %s", pyjson.Repr(c.generation))
		}
	}
	if !view.exists {
		modified := view.modified
		view.consumerData = consumerData{uuid: c.consumer, created: t.now, modified: modified}
	}
	view.project, view.user, view.exists = c.project, c.user, true
	if v >= 38 {
		view.kind = c.kind
	}
	view.updated, view.write = t.now, true
	return view, nil
}

// settle frees what the consumers have, checks what they want against what is left,
// and gives it to them.
func (t *tx) settle(refuse func(string) error, claims []claim, consumers []*consumerView) error {
	touched := map[string]bool{} // their generations count up
	var given []id               // the classes of what is given back
	for i, c := range claims {
		if len(c.shares) == 0 {
			for _, a := range consumers[i].allocations {
				touched[a.provider] = true
				given = append(given, a.class)
			}
		}
		t.allocate(consumers[i], nil)
	}
	if err := t.check(refuse, claims, given); err != nil {
		return err
	}
	for i, c := range claims {
		var list []allocation
		for _, sh := range c.shares {
			list = append(list, allocation{sh.provider, t.class(sh.class).id, sh.n})
			touched[sh.provider] = true
		}
		t.allocate(consumers[i], list)
		consumers[i].generation++
		consumers[i].exists = len(list) > 0
	}
	for provider := range touched {
		t.view(provider).bump()
	}
	return nil
}

// check refuses claims that exceed what the providers have left.
func (t *tx) check(refuse func(string) error, claims []claim, given []id) error {
	asked, err := t.asked(refuse, claims, given)
	if err != nil {
		return err
	}
	if err := t.checkOffered(asked, claims); err != nil {
		return err
	}
	type key struct {
		provider string
		class    id
	}
	sums := map[key]int64{}
	for _, c := range claims {
		for _, sh := range c.shares {
			p, class := t.provider(sh.provider), t.class(sh.class)
			inv := p.inventory(class.id)
			if inv == nil {
				return unallocatable("Inventory for '%s' on resource provider '%s' invalid.", sh.class, sh.provider)
			}
			if sh.n < inv.minUnit || sh.n > inv.maxUnit || sh.n%inv.stepSize != 0 {
				return unallocatable("Unable to create allocation for '%s' on resource provider '%s'. The requested amount would violate inventory constraints.", sh.class, sh.provider)
			}
			sums[key{sh.provider, class.id}] += sh.n
			total := p.used(class.id) + sums[key{sh.provider, class.id}]
			if float64(total) > float64(inv.total-inv.reserved)*inv.ratio {
				return unallocatable("Unable to create allocation for '%s' on resource provider '%s'. The requested amount would exceed the capacity.", sh.class, sh.provider)
			}
		}
	}
	return nil
}

// unallocatable is a 409 that to repeat does not help.
func unallocatable(format string, args ...any) error {
	return conflict("", "Unable to allocate inventory: "+format, args...)
}

// asked returns the classes that are asked for or given back, by id.
func (t *tx) asked(refuse func(string) error, claims []claim, given []id) ([]id, error) {
	ids := slices.Clone(given)
	for _, c := range claims {
		for _, sh := range c.shares {
			class := t.class(sh.class)
			if class == nil {
				return nil, refuse("No such resource class " + sh.class + ".")
			}
			ids = append(ids, class.id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// checkOffered refuses claims on providers that have none of the classes asked for.
func (t *tx) checkOffered(asked []id, claims []claim) error {
	var lacking []string
	for _, c := range claims {
		for _, sh := range c.shares {
			p := t.provider(sh.provider)
			has := slices.ContainsFunc(asked, func(class id) bool { return p.inventory(class) != nil })
			if !has && !slices.Contains(lacking, sh.provider) {
				lacking = append(lacking, sh.provider)
			}
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	var classes []string
	for _, class := range asked {
		classes = append(classes, t.className(class))
	}
	return unallocatable("Inventory for '%s' on resource provider '%s' invalid.", strings.Join(classes, ", "), strings.Join(lacking, ", "))
}

// deleteAllocations is DELETE /allocations/{consumer_uuid}.
func (s *Server) deleteAllocations(q *request) (*response, error) {
	err := s.change(q.r.Context(), func(t *tx) error {
		c := t.consumer(q.path[0])
		if c == nil || len(c.allocations) == 0 {
			return notFound("No allocations for consumer '%s'", q.path[0])
		}
		t.allocate(c, nil)
		c.exists = false
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &noContent, nil
}

// showAllocations is GET /allocations/{consumer_uuid}: from 1.12 on with project and
// user, from 1.28 on with the generation, from 1.38 on with the type.
func (s *Server) showAllocations(q *request) (*response, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	c := s.state.consumers[q.path[0]]
	if c == nil {
		return q.ok([]byte(`{"allocations": {}}`), 0), nil
	}
	b := []byte(`{"allocations": {`)
	for i := 0; i < len(c.allocations); {
		if i > 0 {
			b = append(b, ", "...)
		}
		provider := c.allocations[i].provider
		b = append(pyjson.AppendString(b, provider), `: {"resources": {`...)
		var list []amount
		for ; i < len(c.allocations) && c.allocations[i].provider == provider; i++ {
			list = append(list, amount{c.allocations[i].class, c.allocations[i].n})
		}
		b = append(s.state.appendAmounts(b, list), `}, "generation": `...)
		if p := s.state.providers[provider]; p != nil {
			b = strconv.AppendInt(b, p.generation, 10)
		} else {
			b = append(b, '0')
		}
		b = append(b, '}')
	}
	b = append(b, '}')
	if q.version >= 12 {
		b = pyjson.AppendString(append(b, `, "project_id": `...), c.project)
		b = pyjson.AppendString(append(b, `, "user_id": `...), c.user)
	}
	if q.version >= 28 {
		b = strconv.AppendInt(append(b, `, "consumer_generation": `...), c.generation, 10)
	}
	if q.version >= 38 {
		b = pyjson.AppendString(append(b, `, "consumer_type": `...), cmp.Or(c.kind, unknownType))
	}
	return q.ok(append(b, '}'), c.updated), nil
}

// providerAllocations is GET /resource_providers/{uuid}/allocations: from 1.28 on
// with the consumers' generations.
func (s *Server) providerAllocations(q *request) (*response, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	p := s.state.providers[q.path[0]]
	if p == nil {
		return nil, notFound("Resource provider '%s' not found: No resource provider with uuid %s found", q.path[0], q.path[0])
	}
	b := []byte(`{"allocations": {`)
	var modified int64
	for i, c := range slices.SortedFunc(maps.Keys(p.consumers), func(a, b *consumer) int { return cmp.Compare(a.uuid, b.uuid) }) {
		if i > 0 {
			b = append(b, ", "...)
		}
		modified = max(modified, c.updated)
		var list []amount
		for _, a := range c.allocations {
			if a.provider == p.uuid {
				list = append(list, amount{a.class, a.n})
			}
		}
		b = append(pyjson.AppendString(b, c.uuid), `: {"resources": {`...)
		b = append(s.state.appendAmounts(b, list), '}')
		if q.version >= 28 {
			b = strconv.AppendInt(append(b, `, "consumer_generation": `...), c.generation, 10)
		}
		b = append(b, '}')
	}
	b = strconv.AppendInt(append(b, `}, "resource_provider_generation": `...), p.generation, 10)
	return q.ok(append(b, '}'), modified), nil
}
