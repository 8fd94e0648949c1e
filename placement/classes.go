package placement

import (
	"net/http"
	"slices"

	"croft/placement/internal/pyjson"
	"croft/placement/internal/schema"
)

// What changed in resource classes: they exist from 1.2 on; up to 1.6 PUT renames a
// class to what its body says, from 1.7 on it creates the class it names.

var classSchema = schema.Must(`{"type": "object", "properties": {"name": {"type": "string",
	"pattern": "^CUSTOM_[A-Z0-9_]+$", "maxLength": 255}}, "required": ["name"], "additionalProperties": false}`)

func appendClass(b []byte, name string) []byte {
	b = pyjson.AppendString(append(b, `{"name": `...), name)
	b = append(b, `, "links": [{"rel": "self", "href": `...)
	return append(pyjson.AppendString(b, "/resource_classes/"+name), "}]}"...)
}

// listClasses is GET /resource_classes.
func (s *Server) listClasses(q *request) (*response, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	b := []byte(`{"resource_classes": [`)
	var modified int64
	for c := range s.state.classes.all() {
		if modified != 0 {
			b = append(b, ", "...)
		}
		modified = max(modified, c.created)
		b = appendClass(b, c.name)
	}
	return q.ok(append(b, "]}"...), modified), nil
}

// showClass is GET /resource_classes/{name}.
func (s *Server) showClass(q *request) (*response, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	c := s.state.classes.byName[q.path[0]]
	if c == nil {
		return nil, noClass(q.path[0])
	}
	return q.ok(appendClass(nil, c.name), c.created), nil
}

func noClass(name string) error { return notFound("No such resource class %s.", name) }

// createClass is POST /resource_classes.
func (s *Server) createClass(q *request) (*response, error) {
	body, err := q.readObject(classSchema)
	if err != nil {
		return nil, err
	}
	name := body.String("name")
	err = s.change(q.r.Context(), func(t *tx) error {
		if t.class(name) != nil {
			return conflict("", "Conflicting resource class already exists: %s", name)
		}
		if err := t.roomForClass(); err != nil {
			return err
		}
		t.createClass(name)
		return nil
	})
	if err != nil {
		return nil, err
	}
	resp := &response{status: http.StatusCreated}
	q.location(resp, "/resource_classes/"+name)
	return resp, nil
}

// putClass is PUT /resource_classes/{name}.
func (s *Server) putClass(q *request) (*response, error) {
	if q.version < 7 {
		return s.renameClass(q)
	}
	name := q.path[0]
	body, err := pyjson.Parse([]byte(`{"name": "` + name + `"}`))
	if err != nil {
		return nil, badRequest("Malformed JSON: %v", err)
	}
	if err := classSchema.Validate(body); err != nil {
		return nil, badRequest("JSON does not validate: %v", err)
	}
	resp := &response{}
	err = s.change(q.r.Context(), func(t *tx) error {
		resp.status = http.StatusNoContent
		if t.class(name) == nil {
			if err := t.roomForClass(); err != nil {
				return err
			}
			t.createClass(name)
			resp.status = http.StatusCreated
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	q.location(resp, "/resource_classes/"+name)
	return resp, nil
}

// renameClass is PUT up to 1.6: inventories and allocations go with the name.
func (s *Server) renameClass(q *request) (*response, error) {
	if err := q.wantJSON(); err != nil {
		return nil, err
	}
	body, err := q.readObject(classSchema)
	if err != nil {
		return nil, err
	}
	from, to := q.path[0], body.String("name")
	err = s.change(q.r.Context(), func(t *tx) error {
		c := t.class(from)
		switch {
		case c == nil:
			return noClass(from)
		case c.standard:
			return badRequest("Cannot update standard resource class %s", from)
		case from == to:
			return nil
		case t.class(to) != nil:
			return conflict("", "Resource class already exists: %s", to)
		}
		t.createClass(to)
		t.moveClass(c.id, t.classes[to].id)
		t.removeClass(c)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &response{status: http.StatusOK, contentType: "application/json", body: appendClass(nil, to)}, nil
}

// moveClass has everybody who has one class have another instead. Whoever begins to
// use the old one meanwhile writes it, so its removal fails.
func (t *tx) moveClass(from, to id) {
	for _, uuid := range t.known() {
		v, _ := t.look(uuid)
		if !v.exists || v.inventory(from) == nil {
			continue
		}
		p := t.provider(uuid)
		p.inventories = slices.Clone(p.inventories)
		p.inventory(from).class = to
		sortInventories(p.inventories)
		p.write, p.advance = true, true
		for c := range t.holders(uuid) {
			t.moveConsumer(t.consumer(c), from, to)
		}
	}
}

func (t *tx) moveConsumer(c *consumerView, from, to id) {
	if c == nil {
		return
	}
	list := slices.Clone(c.allocations)
	for i := range list {
		if list[i].class == from {
			list[i].class = to
		}
	}
	t.allocate(c, list)
}

func (t *tx) classInUse(c *nameView) bool {
	n := 0
	if x := t.base.classes.byName[c.name]; x != nil {
		n = x.users
	}
	return t.uses(n, func(p *providerData) bool { return p.inventory(c.id) != nil }) > 0
}

// deleteClass is DELETE /resource_classes/{name}.
func (s *Server) deleteClass(q *request) (*response, error) {
	err := s.change(q.r.Context(), func(t *tx) error {
		c := t.class(q.path[0])
		switch {
		case c == nil:
			return noClass(q.path[0])
		case c.standard:
			return badRequest("Error in delete resource class: Cannot delete standard resource class %s.", c.name)
		case t.classInUse(c):
			return conflict("", "Error in delete resource class: Cannot delete resource class %s. Class is in use in inventory.", c.name)
		}
		t.removeClass(c)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &noContent, nil
}
