package placement

import (
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"croft/placement/internal/schema"
)

// What changed in traits: they exist from 1.6 on; 1.15 adds headers.

var (
	customTrait = regexp.MustCompile(`^CUSTOM_[A-Z0-9_]+$`)
	listTraits  = schema.Must(`{"type": "object", "properties": {"name": {"type": "string"}, "associated": {"type": "string"}},
		"additionalProperties": false}`)
	putTraits = schema.Must(`{"type": "object", "properties": {
		"traits": {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 255}},
		"resource_provider_generation": {"type": "integer"}},
		"required": ["traits", "resource_provider_generation"], "additionalProperties": false}`)
)

// listTraits is GET /traits.
func (s *Server) listTraits(q *request) (*response, error) {
	if err := q.query.validate(listTraits); err != nil {
		return nil, err
	}
	matches, err := traitFilter(q.query)
	if err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	list := []string{}
	var modified int64
	for t := range s.state.traits.all() {
		if matches(t) {
			list = append(list, t.name)
			modified = max(modified, t.created)
		}
	}
	return q.ok(append(appendStrings([]byte(`{"traits": `), list), '}'), modified), nil
}

// traitFilter reads ?name=in:A,B or startswith:A and ?associated=true.
func traitFilter(params query) (func(*named) bool, error) {
	var tests []func(*named) bool
	if name, ok := params.last("name"); ok {
		op, value, found := strings.Cut(name, ":")
		if !found {
			return nil, badRequest(`Badly formatted name parameter. Expected name query string parameter in form: ?name=[in|startswith]:[name1,name2|prefix]. Got: "%s"`, name)
		}
		switch op {
		case "in":
			wanted := strings.Split(value, ",")
			tests = append(tests, func(t *named) bool { return slices.Contains(wanted, t.name) })
		case "startswith":
			tests = append(tests, func(t *named) bool { return strings.HasPrefix(t.name, value) })
		}
	}
	if associated, ok := params.last("associated"); ok {
		want := strings.ToLower(associated)
		if want != "true" && want != "false" {
			return nil, badRequest(`The query parameter "associated" only accepts "true" or "false"`)
		}
		tests = append(tests, func(t *named) bool { return (t.users > 0) == (want == "true") })
	}
	return func(t *named) bool {
		return !slices.ContainsFunc(tests, func(test func(*named) bool) bool { return !test(t) })
	}, nil
}

// showTrait is GET /traits/{name}.
func (s *Server) showTrait(q *request) (*response, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	t := s.state.traits.byName[q.path[0]]
	if t == nil {
		return nil, noTrait(q.path[0])
	}
	resp := &response{status: http.StatusNoContent}
	q.stamp(resp, t.created)
	return resp, nil
}

func noTrait(name string) error { return notFound("No such trait(s): %s.", name) }

// putTrait is PUT /traits/{name}.
func (s *Server) putTrait(q *request) (*response, error) {
	name := q.path[0]
	if !customTrait.MatchString(name) || len(name) > 255 {
		return nil, badRequest(`The trait is invalid. A valid trait must be no longer than 255 characters, start with the prefix "CUSTOM_" and use following characters: "A"-"Z", "0"-"9" and "_"`)
	}
	resp := &response{}
	var created int64
	err := s.change(q.r.Context(), func(t *tx) error {
		resp.status = http.StatusNoContent
		if t.trait(name) == nil {
			if err := t.roomForTrait(); err != nil {
				return err
			}
			t.createTrait(name)
			resp.status = http.StatusCreated
		}
		created = t.traits[name].named.created
		return nil
	})
	if err != nil {
		return nil, err
	}
	q.stamp(resp, created)
	q.location(resp, "/traits/"+name)
	return resp, nil
}

// deleteTrait is DELETE /traits/{name}.
func (s *Server) deleteTrait(q *request) (*response, error) {
	err := s.change(q.r.Context(), func(t *tx) error {
		v := t.trait(q.path[0])
		switch {
		case v == nil:
			return noTrait(q.path[0])
		case v.standard:
			return badRequest("Cannot delete standard trait %s.", v.name)
		case t.traitInUse(v):
			return conflict("", "The trait %s is in use by a resource provider.", v.name)
		}
		t.removeTrait(v)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &noContent, nil
}

func (t *tx) traitInUse(v *nameView) bool {
	n := 0
	if x := t.base.traits.byName[v.name]; x != nil {
		n = x.users
	}
	return t.uses(n, func(p *providerData) bool { return hasID(p.traits, v.id) }) > 0
}

func (q *request) sendTraits(p *providerData, v vocabulary) *response {
	names := make([]string, len(p.traits))
	for i, t := range p.traits {
		names[i] = v.traitName(t)
	}
	b := appendStrings([]byte(`{"traits": `), names)
	b = strconv.AppendInt(append(b, `, "resource_provider_generation": `...), p.generation, 10)
	return q.ok(append(b, '}'), p.changed())
}

// showProviderTraits is GET /resource_providers/{uuid}/traits.
func (s *Server) showProviderTraits(q *request) (*response, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	p := s.state.providers[q.path[0]]
	if p == nil {
		return nil, noProviderHere(q.path[0], "")
	}
	return q.sendTraits(&p.providerData, s.state), nil
}

// setProviderTraits is PUT /resource_providers/{uuid}/traits.
func (s *Server) setProviderTraits(q *request) (*response, error) {
	uuid := q.path[0]
	body, err := q.readObject(putTraits)
	if err != nil {
		return nil, err
	}
	given, _ := body.Get("traits")
	var resp *response
	err = s.change(q.r.Context(), func(t *tx) error {
		v := t.provider(uuid)
		if v == nil {
			return noProvider(uuid)
		}
		if !v.isAt(body) {
			return conflict(codeConcurrentUpdate, "Resource provider's generation already changed. Please update the generation and try again.")
		}
		ids, err := t.traitIDs(given.([]any))
		if err != nil {
			return err
		}
		t.setTraits(v, ids)
		resp = q.sendTraits(&v.providerData, t)
		return nil
	})
	return resp, err
}

// traitIDs finds traits and keeps them from going away.
func (t *tx) traitIDs(list []any) ([]id, error) {
	var ids []id
	var missing []string
	for _, name := range list {
		if v := t.trait(name.(string)); v != nil {
			v.hold()
			ids = insertID(ids, v.id)
		} else if !slices.Contains(missing, name.(string)) {
			missing = append(missing, name.(string))
		}
	}
	if len(missing) > 0 {
		return nil, badRequest("No such trait %s", strings.Join(missing, ", "))
	}
	return ids, nil
}

// setTraits replaces a provider's traits; to set what it has already changes nothing.
func (t *tx) setTraits(v *providerView, ids []id) {
	if slices.Equal(ids, v.traits) {
		return
	}
	v.traits, v.updated, v.write = ids, t.now, true
	v.bump()
}

// deleteProviderTraits is DELETE /resource_providers/{uuid}/traits.
func (s *Server) deleteProviderTraits(q *request) (*response, error) {
	err := s.change(q.r.Context(), func(t *tx) error {
		v := t.provider(q.path[0])
		if v == nil {
			return noProvider(q.path[0])
		}
		t.setTraits(v, nil)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &noContent, nil
}
