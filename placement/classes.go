package placement

import (
	"net/http"

	"croft/placement/internal/schema"
	"croft/placement/ledger"
)

// Microversions of resource classes: they exist from 1.2 on; up to 1.6 PUT renames a class, from 1.7 on it creates the
// class in its path.

var classSchema = schema.Must(`{"type": "object", "properties": {"name": {"type": "string",
	"pattern": "^CUSTOM_[A-Z0-9_]+$", "maxLength": 255}}, "required": ["name"], "additionalProperties": false}`)

// classAnswer is a class in an answer.
type classAnswer struct {
	Name  string `json:"name"`
	Links []link `json:"links"`
}

func classOf(name string) classAnswer {
	return classAnswer{name, []link{{"self", "/resource_classes/" + name}}}
}

// classes handles /resource_classes.
type classes struct{ ledger *ledger.Ledger }

// list serves GET /resource_classes.
func (h classes) list(q *request) (*response, error) {
	return q.view(h.ledger, func(st *ledger.State) (any, int64, error) {
		var list []classAnswer
		var modified int64
		for c := range st.Classes().All() {
			list = append(list, classOf(c.Name))
			modified = max(modified, c.Created)
		}
		return struct {
			Classes []classAnswer `json:"resource_classes"`
		}{list}, modified, nil
	})
}

// show serves GET /resource_classes/{name}.
func (h classes) show(q *request) (*response, error) {
	return q.view(h.ledger, func(st *ledger.State) (any, int64, error) {
		c := st.Classes().Get(q.path[0])
		if c == nil {
			return nil, 0, ledger.NoClass(q.path[0])
		}
		return classOf(c.Name), c.Created, nil
	})
}

// create serves POST /resource_classes.
func (h classes) create(q *request) (*response, error) {
	body, err := q.read(classSchema)
	if err != nil {
		return nil, err
	}
	name := body.Get("name").Text()
	err = h.ledger.Change(q.r.Context(), func(t *ledger.Tx) error { return t.CreateClass(name) })
	if err != nil {
		return nil, err
	}
	resp := &response{status: http.StatusCreated}
	q.location(resp, "/resource_classes/"+name)
	return resp, nil
}

// put serves PUT /resource_classes/{name}.
func (h classes) put(q *request) (*response, error) {
	if q.version < 7 {
		return h.rename(q)
	}
	name := q.path[0]
	if err := classSchema.Validate(schema.Object(map[string]string{"name": name})); err != nil {
		return nil, badRequest("JSON does not validate: %v", err)
	}
	resp := &response{}
	err := h.ledger.Change(q.r.Context(), func(t *ledger.Tx) error {
		created, err := t.EnsureClass(name)
		resp.status = createdStatus(created)
		return err
	})
	if err != nil {
		return nil, err
	}
	q.location(resp, "/resource_classes/"+name)
	return resp, nil
}

// rename serves PUT up to 1.6.
func (h classes) rename(q *request) (*response, error) {
	if err := q.wantJSON(); err != nil {
		return nil, err
	}
	body, err := q.read(classSchema)
	if err != nil {
		return nil, err
	}
	name := body.Get("name").Text()
	err = h.ledger.Change(q.r.Context(), func(t *ledger.Tx) error { return t.RenameClass(q.path[0], name) })
	if err != nil {
		return nil, err
	}
	return &response{status: http.StatusOK, contentType: "application/json", body: encode(classOf(name))}, nil
}

// delete serves DELETE /resource_classes/{name}.
func (h classes) delete(q *request) (*response, error) {
	return q.change(h.ledger, func(t *ledger.Tx) error { return t.DeleteClass(q.path[0]) })
}
