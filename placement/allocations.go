package placement

import (
	"cmp"
	"fmt"
	"net/http"
	"strconv"

	"croft/placement/internal/schema"
	"croft/placement/ledger"
)

// Microversions of PUT /allocations/{uuid}: up to 1.11 allocations are a list, from 1.12 on an object. 1.8 requires
// project and user, 1.28 adds the consumer's generation and allows empty allocations, 1.34 adds mappings, 1.38 the
// consumer's type. POST /allocations exists from 1.13 on; its values have the same form and may always be empty.

const (
	amountsSchema = `{"type": "object", "minProperties": 1, "patternProperties": {"^[A-Z0-9_]+$":
		{"type": "integer", "minimum": 1}}, "additionalProperties": false}`
	allocationList = `{"type": "array", "minItems": 1, "items": {"type": "object", "properties": {
		"resource_provider": {"type": "object", "properties": {"uuid": {"type": "string", "format": "uuid"}},
			"additionalProperties": false, "required": ["uuid"]},
		"resources": ` + amountsSchema + `}, "required": ["resource_provider", "resources"],
		"additionalProperties": false}}`
	ownerProperties = `"project_id": {"type": "string", "minLength": 1, "maxLength": 255},
		"user_id": {"type": "string", "minLength": 1, "maxLength": 255}`
	generationProperty = `, "consumer_generation": {"type": ["integer", "null"], "additionalProperties": false}`
	mappingsProperty   = `, "mappings": {"type": "object", "minProperties": 1, "patternProperties": {"[a-zA-Z0-9_-]{1,64}":
		{"type": "array", "minItems": 1, "items": {"type": "string", "format": "uuid"}}}}`
	typeProperty = `, "consumer_type": {"type": "string", "pattern": "^[A-Z0-9_]+$", "minLength": 1, "maxLength": 255}`
	uuidPattern  = `^[0-9a-fA-F-]{36}$`
)

// allocationText returns the schema of one consumer's allocations, from 1.12 on.
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

// allocationsText returns the schema of several consumers' allocations.
func allocationsText(v version, atLeast int) string {
	return fmt.Sprintf(`{"type": "object", "minProperties": %d, "additionalProperties": false,
		"patternProperties": {"%s": %s}}`, atLeast, uuidPattern, allocationText(v, 0))
}

var (
	putAllocations = []versioned{
		{38, schema.Must(allocationText(38, 0))}, {34, schema.Must(allocationText(34, 0))},
		{28, schema.Must(allocationText(28, 0))}, {12, schema.Must(allocationText(12, 1))},
		{8, schema.Must(`{"type": "object", "properties": {"allocations": ` + allocationList + `, ` + ownerProperties +
			`}, "required": ["allocations", "project_id", "user_id"], "additionalProperties": false}`)},
		{0, schema.Must(`{"type": "object", "properties": {"allocations": ` + allocationList + `},
			"required": ["allocations"], "additionalProperties": false}`)},
	}
	postAllocations = []versioned{
		{38, schema.Must(allocationsText(38, 1))}, {34, schema.Must(allocationsText(34, 1))},
		{28, schema.Must(allocationsText(28, 1))}, {13, schema.Must(allocationsText(13, 1))},
	}
)

// incomplete is the project and user of allocations that have neither.
const incomplete = "00000000-0000-0000-0000-000000000000"

// readClaim reads the claim of one consumer from a valid body.
func readClaim(consumer string, body schema.Value) ledger.ClaimRequest {
	claim := ledger.ClaimRequest{Consumer: consumer, Project: incomplete, User: incomplete,
		Type: body.Get("consumer_type").Text()}
	if project := body.Get("project_id").Text(); project != "" {
		claim.Project, claim.User = project, body.Get("user_id").Text()
	}
	if generation := body.Get("consumer_generation"); !generation.Null() {
		n := generation.Integer(0)
		claim.Generation = &n
	}
	for _, provider := range providersIn(body.Get("allocations")) {
		for _, amount := range provider.Get("resources").Parts() {
			claim.Demands = append(claim.Demands, ledger.Demand{Provider: provider.Name,
				NamedAmount: ledger.NamedAmount{Class: amount.Name, N: amount.Integer(0)}})
		}
	}
	return claim
}

// providersIn returns the members of an object of allocations. Up to 1.11 it is a list, where the last entry for a
// provider wins.
func providersIn(allocations schema.Value) []schema.Part {
	var named []schema.Part
	for _, p := range allocations.Parts() {
		if !p.Has("resource_provider") {
			return allocations.Parts()
		}
		named = append(named, schema.Part{Name: p.Get("resource_provider").Get("uuid").Text(), Value: p.Value})
	}
	return schema.LastOfEach(named)
}

// readClaims reads claims by consumer.
func readClaims(body schema.Value) []ledger.ClaimRequest {
	var claims []ledger.ClaimRequest
	for _, c := range body.Parts() {
		claims = append(claims, readClaim(c.Name, c.Value))
	}
	return claims
}

// increases is the preference (RFC 7240) of a client, such as croft's own, that changes claims also on providers that
// have become smaller than their use: what does not increase the use of a provider is granted. OpenStack's server
// ignores the preference and refuses such a claim, even if it is the present one.
const increases = "capacity-check=increases"

// claimRules returns the rules for the claims of a request.
func (q *request) claimRules(refuse func(string) error) ledger.ClaimRules {
	return ledger.ClaimRules{Generations: q.version >= 28, Types: q.version >= 38, Refuse: refuse,
		Increases: prefers(q.r.Header, increases)}
}

// allocations handles /allocations, and /resource_providers/{uuid}/allocations.
type allocations struct{ ledger *ledger.Ledger }

// set serves PUT /allocations/{consumer_uuid}.
func (h allocations) set(q *request) (*response, error) {
	consumer, ok := schema.UUID(q.path[0])
	if !ok {
		return nil, badRequest("Malformed consumer_uuid: %s", q.path[0])
	}
	body, err := q.read(pick(q.version, putAllocations))
	if err != nil {
		return nil, err
	}
	rules := q.claimRules(func(reason string) error {
		return badRequest("Unable to allocate inventory for consumer %s: %s", consumer, reason)
	})
	claim := readClaim(consumer, body)
	return q.change(h.ledger, func(t *ledger.Tx) error {
		if err := q.ifMatch(t.ConsumerVersion(consumer)); err != nil {
			return err
		}
		return t.Claim(rules, claim)
	})
}

// A consumer's entity tag (RFC 9110, section 8.8.3) distinguishes it from an earlier consumer of the same UUID; the
// generation does not. OpenStack's server sends no tag; clients that send no If-Match notice no difference.

// entityTag returns the tag of a version.
func entityTag(version int64) string { return strconv.Quote(strconv.FormatInt(version, 10)) }

// ifMatch refuses a request whose If-Match names a version other than the current one, which is 0 if nothing exists.
func (q *request) ifMatch(version int64) error {
	want := q.r.Header.Get("If-Match")
	if want == "" || version != 0 && (want == "*" || want == entityTag(version)) {
		return nil
	}
	return &apiError{status: http.StatusPreconditionFailed, code: ledger.CodeConcurrentUpdate,
		detail: "The consumer has changed since it was read. Read it again and repeat your update."}
}

// manage serves POST /allocations.
func (h allocations) manage(q *request) (*response, error) {
	body, err := q.read(pick(q.version, postAllocations))
	if err != nil {
		return nil, err
	}
	rules := q.claimRules(func(reason string) error {
		return badRequest("Unable to allocate inventory %s", reason)
	})
	claims := readClaims(body)
	return q.change(h.ledger, func(t *ledger.Tx) error { return t.Claim(rules, claims...) })
}

// delete serves DELETE /allocations/{consumer_uuid}.
func (h allocations) delete(q *request) (*response, error) {
	return q.change(h.ledger, func(t *ledger.Tx) error { return t.Release(q.path[0]) })
}

// grant is the allocations that one consumer has from one provider, in an answer.
type grant struct {
	Resources          map[string]int64 `json:"resources"`
	Generation         *int64           `json:"generation,omitempty"`          // of the provider
	ConsumerGeneration *int64           `json:"consumer_generation,omitempty"` // of the consumer
}

// show serves GET /allocations/{consumer_uuid}: from 1.12 on with project and user, from 1.28 on with the generation,
// from 1.38 on with the type.
func (h allocations) show(q *request) (*response, error) {
	type answer struct {
		Allocations map[string]grant `json:"allocations"`
		Project     string           `json:"project_id,omitempty"`
		User        string           `json:"user_id,omitempty"`
		Generation  *int64           `json:"consumer_generation,omitempty"`
		Type        string           `json:"consumer_type,omitempty"`
	}
	var version int64
	resp, err := q.view(h.ledger, func(st *ledger.State) (any, int64, error) {
		a := answer{Allocations: map[string]grant{}}
		c := st.Consumer(q.path[0])
		if c == nil {
			return a, 0, nil
		}
		version = c.Version()
		for _, x := range c.Allocations {
			g, known := a.Allocations[x.Provider]
			if !known {
				var generation int64
				if p := st.Provider(x.Provider); p != nil {
					generation = p.Generation
				}
				g = grant{Resources: map[string]int64{}, Generation: &generation}
				a.Allocations[x.Provider] = g
			}
			g.Resources[st.ClassName(x.Class)] = x.N
		}
		if q.version >= 12 {
			a.Project, a.User = c.Project, c.User
		}
		if q.version >= 28 {
			generation := c.Generation
			a.Generation = &generation
		}
		if q.version >= 38 {
			a.Type = cmp.Or(c.Type, unknownType)
		}
		return a, c.Updated, nil
	})
	if err == nil && version != 0 {
		resp.set("ETag", entityTag(version))
	}
	return resp, err
}

// ofProvider serves GET /resource_providers/{uuid}/allocations: from 1.28 on with the consumers' generations.
func (h allocations) ofProvider(q *request) (*response, error) {
	type answer struct {
		Allocations map[string]grant `json:"allocations"`
		Generation  int64            `json:"resource_provider_generation"`
	}
	return q.view(h.ledger, func(st *ledger.State) (any, int64, error) {
		p := st.Provider(q.path[0])
		if p == nil {
			return nil, 0, notFound("Resource provider '%s' not found: No resource provider with uuid %s found",
				q.path[0], q.path[0])
		}
		a := answer{map[string]grant{}, p.Generation}
		var modified int64
		for c := range p.Consumers() {
			modified = max(modified, c.Updated)
			g := grant{Resources: map[string]int64{}}
			for _, x := range c.Allocations {
				if x.Provider == p.UUID {
					g.Resources[st.ClassName(x.Class)] = x.N
				}
			}
			if q.version >= 28 {
				generation := c.Generation
				g.ConsumerGeneration = &generation
			}
			a.Allocations[c.UUID] = g
		}
		return a, modified, nil
	})
}
