package placement

import (
	"net/http"
	"slices"
	"strings"

	"croft/placement/internal/schema"
	"croft/placement/ledger"
)

// Microversions of traits: they exist from 1.6 on; 1.15 adds headers.

var (
	listTraits = schema.Must(`{"type": "object", "properties": {"name": {"type": "string"},
		"associated": {"type": "string"}}, "additionalProperties": false}`)
	putTraits = schema.Must(`{"type": "object", "properties": {
		"traits": {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 255}},
		"resource_provider_generation": {"type": "integer"}},
		"required": ["traits", "resource_provider_generation"], "additionalProperties": false}`)
)

// traits handles /traits.
type traits struct{ ledger *ledger.Ledger }

// list serves GET /traits.
func (h traits) list(q *request) (*response, error) {
	if err := q.query.validate(listTraits); err != nil {
		return nil, err
	}
	matches, err := traitFilter(q.query)
	if err != nil {
		return nil, err
	}
	return q.view(h.ledger, func(st *ledger.State) (any, int64, error) {
		list := []string{}
		var modified int64
		for t := range st.Traits().All() {
			if matches(t) {
				list = append(list, t.Name)
				modified = max(modified, t.Created)
			}
		}
		return struct {
			Traits []string `json:"traits"`
		}{list}, modified, nil
	})
}

// traitFilter reads ?name=in:A,B or startswith:A and ?associated=true.
func traitFilter(params query) (func(*ledger.Symbol) bool, error) {
	var tests []func(*ledger.Symbol) bool
	if name, ok := params.last("name"); ok {
		op, value, found := strings.Cut(name, ":")
		if !found {
			return nil, badRequest(`Badly formatted name parameter. Expected name query string parameter in form: `+
				`?name=[in|startswith]:[name1,name2|prefix]. Got: "%s"`, name)
		}
		switch op {
		case "in":
			wanted := strings.Split(value, ",")
			tests = append(tests, func(t *ledger.Symbol) bool { return slices.Contains(wanted, t.Name) })
		case "startswith":
			tests = append(tests, func(t *ledger.Symbol) bool { return strings.HasPrefix(t.Name, value) })
		}
	}
	if associated, ok := params.last("associated"); ok {
		want := strings.ToLower(associated)
		if want != "true" && want != "false" {
			return nil, badRequest(`The query parameter "associated" only accepts "true" or "false"`)
		}
		tests = append(tests, func(t *ledger.Symbol) bool { return (t.Users > 0) == (want == "true") })
	}
	return func(t *ledger.Symbol) bool {
		return !slices.ContainsFunc(tests, func(test func(*ledger.Symbol) bool) bool { return !test(t) })
	}, nil
}

// show serves GET /traits/{name}.
func (h traits) show(q *request) (*response, error) {
	resp := &response{status: http.StatusNoContent}
	err := h.ledger.View(func(st *ledger.State) error {
		t := st.Traits().Get(q.path[0])
		if t == nil {
			return ledger.NoTrait(q.path[0])
		}
		q.stamp(resp, t.Created)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// put serves PUT /traits/{name}.
func (h traits) put(q *request) (*response, error) {
	name := q.path[0]
	if !ledger.CustomTrait.MatchString(name) || len(name) > 255 {
		return nil, badRequest(`The trait is invalid. A valid trait must be no longer than 255 characters, ` +
			`start with the prefix "CUSTOM_" and use following characters: "A"-"Z", "0"-"9" and "_"`)
	}
	resp := &response{}
	var at int64
	err := h.ledger.Change(q.r.Context(), func(t *ledger.Tx) (err error) {
		var created bool
		created, at, err = t.EnsureTrait(name)
		resp.status = createdStatus(created)
		return err
	})
	if err != nil {
		return nil, err
	}
	q.stamp(resp, at)
	q.location(resp, "/traits/"+name)
	return resp, nil
}

// createdStatus is the status of a PUT that creates an object unless it exists.
func createdStatus(created bool) int {
	if created {
		return http.StatusCreated
	}
	return http.StatusNoContent
}

// delete serves DELETE /traits/{name}.
func (h traits) delete(q *request) (*response, error) {
	return q.change(h.ledger, func(t *ledger.Tx) error { return t.DeleteTrait(q.path[0]) })
}

// providerTraits handles /resource_providers/{uuid}/traits.
type providerTraits struct{ ledger *ledger.Ledger }

type traitsAnswer struct {
	Traits     []string `json:"traits"`
	Generation int64    `json:"resource_provider_generation"`
}

func traitsOf(p *ledger.ProviderData, v ledger.Vocabulary) traitsAnswer {
	return traitsAnswer{traitNames(p, v), p.Generation}
}

func traitNames(p *ledger.ProviderData, v ledger.Vocabulary) []string {
	names := make([]string, len(p.Traits))
	for i, t := range p.Traits {
		names[i] = v.TraitName(t)
	}
	return names
}

// show serves GET /resource_providers/{uuid}/traits.
func (h providerTraits) show(q *request) (*response, error) {
	return q.view(h.ledger, func(st *ledger.State) (any, int64, error) {
		p := st.Provider(q.path[0])
		if p == nil {
			return nil, 0, noProviderHere(q.path[0], "")
		}
		return traitsOf(&p.ProviderData, st), p.Changed(), nil
	})
}

// set serves PUT /resource_providers/{uuid}/traits.
func (h providerTraits) set(q *request) (*response, error) {
	body, err := q.read(putTraits)
	if err != nil {
		return nil, err
	}
	return q.update(h.ledger, func(t *ledger.Tx) (any, int64, error) {
		p, err := t.SetTraits(q.path[0], generation(body), body.Get("traits").Texts())
		return traitsOf(&p, t), p.Changed(), err
	})
}

// delete serves DELETE /resource_providers/{uuid}/traits.
func (h providerTraits) delete(q *request) (*response, error) {
	return q.change(h.ledger, func(t *ledger.Tx) error { return t.DeleteTraits(q.path[0]) })
}
