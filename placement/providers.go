package placement

import (
	"context"
	"net/http"
	"strconv"

	"github.com/google/uuid"

	"croft/placement/internal/pyjson"
	"croft/placement/internal/schema"
)

// What changed in /resource_providers: 1.1, 1.6 and 1.11 add links, 1.14 parents
// and in_tree, 1.15 headers, 1.20 the body of the answer to POST, 1.37 re-parenting;
// 1.3, 1.4, 1.14 and 1.18 add filters, for which see filters.go.

// parentSchema is what 1.14 adds to the bodies.
const parentSchema = `, "parent_provider_uuid": {"anyOf": [{"type": "string", "format": "uuid"}, {"type": "null"}]}`

func providerSchema(more string) *schema.Schema {
	return schema.Must(`{"type": "object", "properties": {"name": {"type": "string", "maxLength": 200}` + more +
		`}, "required": ["name"], "additionalProperties": false}`)
}

const uuidProperty = `, "uuid": {"type": "string", "format": "uuid"}`

var (
	postProvider0  = providerSchema(uuidProperty)
	postProvider14 = providerSchema(uuidProperty + parentSchema)
	putProvider0   = providerSchema("")
	putProvider14  = providerSchema(parentSchema)
)

func appendProvider(b []byte, q *request, p *providerData, root string) []byte {
	url := "/resource_providers/" + p.uuid
	b = pyjson.AppendString(append(b, `{"uuid": `...), p.uuid)
	b = pyjson.AppendString(append(b, `, "name": `...), p.name)
	b = strconv.AppendInt(append(b, `, "generation": `...), p.generation, 10)
	b = append(b, `, "links": [{"rel": "self", "href": "`+url+`"}`...)
	for _, link := range []struct {
		rel   string
		since version
	}{{"inventories", 0}, {"usages", 0}, {"aggregates", 1}, {"traits", 6}, {"allocations", 11}} {
		if q.version >= link.since {
			b = append(b, `, {"rel": "`+link.rel+`", "href": "`+url+`/`+link.rel+`"}`...)
		}
	}
	b = append(b, ']')
	if q.version >= 14 {
		b = appendNullable(append(b, `, "parent_provider_uuid": `...), p.parent)
		b = pyjson.AppendString(append(b, `, "root_provider_uuid": `...), root)
	}
	return append(b, '}')
}

// appendNullable writes a string, or null for an empty one.
func appendNullable(b []byte, s string) []byte {
	if s == "" {
		return append(b, "null"...)
	}
	return pyjson.AppendString(b, s)
}

// createProvider is POST /resource_providers.
func (s *Server) createProvider(q *request) (*response, error) {
	want := postProvider0
	if q.version >= 14 {
		want = postProvider14
	}
	body, err := q.readObject(want)
	if err != nil {
		return nil, err
	}
	id, given := schema.UUID(body.String("uuid"))
	if !given {
		id = uuid.NewString()
	}
	name, parent := body.String("name"), body.String("parent_provider_uuid")
	var made providerData
	root := id
	err = s.change(q.r.Context(), func(t *tx) error {
		if root, err = t.insertProvider(id, name, parent); err != nil {
			return err
		}
		made = t.providers[id].providerData
		return nil
	})
	if err != nil {
		return nil, err
	}
	resp := &response{status: http.StatusCreated}
	if q.version >= 20 {
		resp = q.ok(appendProvider(nil, q, &made, root), made.created)
	}
	q.location(resp, "/resource_providers/"+id)
	return resp, nil
}

// insertProvider creates a provider and returns the UUID of its root.
func (t *tx) insertProvider(id, name, parent string) (string, error) {
	refuse := func(reason string) error {
		return badRequest("Unable to create resource provider \"%s\", %s: Object action create failed because: %s", name, id, reason)
	}
	if name == "" {
		return "", refuse("name is required")
	}
	root := id
	if parent != "" {
		if parent == id {
			return "", refuse("parent provider UUID cannot be same as UUID. Please set parent provider UUID to None if there is no parent.")
		}
		up := t.whole(parent)
		if up == nil {
			return "", refuse("parent provider UUID does not exist.")
		}
		up.write = true // keeps it from being deleted meanwhile
		root = t.root(parent)
	}
	v := t.view(id)
	t.unchanged(KindProvider, id, v.modified)
	switch owner := t.owner(name); {
	case v.exists:
		return "", conflict(codeDuplicateName, "Conflicting resource provider uuid: %s already exists.", id)
	case owner != "":
		return "", conflict(codeDuplicateName, "Conflicting resource provider name: %s already exists.", name)
	}
	v.providerData = providerData{uuid: id, parent: parent, created: t.now,
		modified: v.modified, fence: v.fence, order: order{index: t.index}}
	t.index++
	t.rename(v, name)
	v.exists, v.write, v.advance = true, true, true
	return root, nil
}

// root returns the UUID of the root of a provider that exists.
func (t *tx) root(uuid string) string {
	for {
		v, ok := t.look(uuid)
		if !ok || v.parent == "" {
			return uuid
		}
		uuid = v.parent
	}
}

// showProvider is GET /resource_providers/{uuid}.
func (s *Server) showProvider(q *request) (*response, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	p, err := s.state.get(q.path[0])
	if err != nil {
		return nil, err
	}
	return q.ok(appendProvider(nil, q, &p.providerData, p.root.uuid), p.changed()), nil
}

// get returns a provider that exists.
func (s *state) get(uuid string) (*provider, error) {
	if p := s.providers[uuid]; p != nil {
		return p, nil
	}
	return nil, noProvider(uuid)
}

func noProvider(uuid string) *apiError {
	return notFound("No resource provider with uuid %s found", uuid)
}

// updateProvider is PUT /resource_providers/{uuid}.
func (s *Server) updateProvider(q *request) (*response, error) {
	id := q.path[0]
	if err := s.mustExist(q.r.Context(), id); err != nil {
		return nil, err
	}
	want := putProvider0
	if q.version >= 14 {
		want = putProvider14
	}
	body, err := q.readObject(want)
	if err != nil {
		return nil, err
	}
	_, given := body.Get("parent_provider_uuid")
	parent := body.String("parent_provider_uuid")
	var made providerData
	var root string
	err = s.change(q.r.Context(), func(t *tx) error {
		v := t.whole(id)
		if v == nil {
			return noProvider(id)
		}
		if given {
			if err := t.reparent(v, parent, q.version >= 37); err != nil {
				return err
			}
		}
		if name := body.String("name"); name != v.name {
			if t.owner(name) != "" {
				return conflict(codeDuplicateName, "Conflicting resource provider %s already exists.", name)
			}
			t.rename(v, name)
		}
		v.updated, v.write = t.now, true
		made, root = v.providerData, t.root(id)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return q.ok(appendProvider(nil, q, &made, root), made.changed()), nil
}

// mustExist answers 404 before the body is looked at, as the original does. Another
// server may have made the provider just now, so a miss is asked twice.
func (s *Server) mustExist(ctx context.Context, uuid string) error {
	if s.exists(uuid) {
		return nil
	}
	if err := s.catchUp(ctx); err != nil {
		return unavailable(err)
	}
	if s.exists(uuid) {
		return nil
	}
	return noProvider(uuid)
}

func (s *Server) exists(uuid string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.state.providers[uuid] != nil
}

// reparent moves a provider with all below it; an empty parent makes it a root.
// Before 1.37 only a root may be moved, to anywhere.
func (t *tx) reparent(v *providerView, parent string, freely bool) error {
	refuse := func(action, reason string) error {
		return badRequest("Unable to save resource provider %s: Object action %s failed because: %s", v.uuid, action, reason)
	}
	if parent == "" {
		if v.parent != "" && !freely {
			return refuse("update", "un-parenting a provider is not currently allowed.")
		}
		v.parent = ""
		return nil
	}
	up := t.whole(parent)
	switch {
	case up == nil:
		return refuse("create", "parent provider UUID does not exist.")
	case v.parent != "" && v.parent != parent && !freely:
		return refuse("update", "re-parenting a provider is not currently allowed.")
	}
	// Who changes the tree above the new parent meanwhile could close a loop with us:
	// all of it is compared, and written by whoever moves it.
	for id := parent; id != ""; {
		if id == v.uuid {
			return refuse("update", "creating loop in the provider tree is not allowed.")
		}
		above := t.whole(id)
		if above == nil {
			break
		}
		id = above.parent
	}
	up.write = true // keeps it from being deleted meanwhile
	v.parent = parent
	return nil
}

// deleteProvider is DELETE /resource_providers/{uuid}.
func (s *Server) deleteProvider(q *request) (*response, error) {
	id := q.path[0]
	err := s.change(q.r.Context(), func(t *tx) error {
		v := t.whole(id)
		switch {
		case v == nil:
			return notFound("No resource provider with uuid %s found for delete", id)
		case len(t.children(id)) > 0:
			return conflict(codeProviderIsParent, "Unable to delete parent resource provider %s: It has child resource providers.", id)
		case len(v.usage) > 0:
			return conflict(codeProviderInUse, "Unable to delete resource provider %s: Resource provider has allocations.", id)
		}
		t.owners[v.name] = ""
		v.exists, v.write = false, true
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &noContent, nil
}
