package control

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"croft/control/actions"
	"croft/control/api"
	"croft/control/bodies"
	"croft/tenant/access"
	"croft/tenant/objects"
)

var objectOperations = noun{Tag: "objects",
	Description: "What people and policies note about instances, images, hosts and groups: properties and tags, " +
		"and the definitions that govern them. What the caller may not read is not there, in lists and filters " +
		"neither.",
	Operations: []Operation{
		do(Operation{ID: "listObjects", At: "GET /v1/objects", May: access.Reads,
			Summary: "List the properties and tags of things of a kind",
			Description: "By project and ID. Things about which nothing is noted that the caller may read are " +
				"left out."}, listObjects),
		do(Operation{ID: "getObject", At: "GET /v1/{things}/{id}/object", May: access.Reads,
			Summary: "Get the properties and tags of a thing"}, object),
		// The permissions of properties decide who changes them, which may include readers.
		do(Operation{ID: "changeObject", At: "PATCH /v1/{things}/{id}/object", May: access.Reads,
			Summary: "Change the properties and tags of a thing, all or none",
			Description: "403 property_forbidden names the properties that the caller may not write. 400 " +
				"schema_violation says, for each property, what its definition demands."},
			func(ctx context.Context, c *call, in api.ObjectChange) (objects.Object, error) {
				return changeThing(ctx, c, in.ObjectBase, objects.Change{Set: in.Set, Remove: in.Remove,
					AddTags: in.AddTags, RemoveTags: in.RemoveTags})
			}),
		do(Operation{ID: "getProperty", At: "GET /v1/{things}/{id}/properties/{key}", May: access.Reads,
			Summary: "Get the value of a property"}, getProperty),
		do(Operation{ID: "setProperty", At: "PUT /v1/{things}/{id}/properties/{key}", May: access.Reads,
			Summary: "Set a property"},
			func(ctx context.Context, c *call, in api.NewProperty) (objects.Object, error) {
				return changeThing(
					ctx,
					c,
					in.ObjectBase,
					objects.Change{Set: map[string]objects.Value{in.Key: in.Value}},
				)
			}),
		do(Operation{ID: "removeProperty", At: "DELETE /v1/{things}/{id}/properties/{key}", May: access.Reads,
			Summary: "Remove a property"},
			func(ctx context.Context, c *call, in api.PropertyRemoval) (objects.Object, error) {
				return changeThing(ctx, c, in.ObjectBase, objects.Change{Remove: []string{in.Key}})
			}),
		do(Operation{ID: "addTag", At: "PUT /v1/{things}/{id}/tags/{tag}", May: access.Changes,
			Summary: "Put a tag on a thing"},
			func(ctx context.Context, c *call, in api.TagNamed) (objects.Object, error) {
				return changeThing(ctx, c, in.ObjectBase, objects.Change{AddTags: []string{in.Tag}})
			}),
		do(Operation{ID: "removeTag", At: "DELETE /v1/{things}/{id}/tags/{tag}", May: access.Changes,
			Summary: "Remove a tag from a thing"},
			func(ctx context.Context, c *call, in api.TagNamed) (objects.Object, error) {
				return changeThing(ctx, c, in.ObjectBase, objects.Change{RemoveTags: []string{in.Tag}})
			}),
		do(Operation{ID: "getDefinition", At: "GET /v1/definitions/{kind}", May: access.EveryHuman,
			Summary:     "Get the definition that is set for the properties of a kind, or the one that applies",
			Description: "Permissions for projects that the caller does not see are left out."}, getDefinition),
		do(Operation{ID: "setDefinition", At: "PUT /v1/definitions/{kind}", May: access.Operates,
			Object:      actions.Definition,
			Summary:     "Set the definition of a kind",
			Description: "It changes no property, and binds at the next change of each thing's properties.",
			Conflict:    api.GenerationMismatch}, setDefinition),
		do(Operation{ID: "removeDefinition", At: "DELETE /v1/definitions/{kind}", May: access.Operates,
			Object:  actions.Definition,
			Summary: "Remove the definition of a kind, so that a less explicit one applies"},
			func(ctx context.Context, c *call, in api.DefinitionNamed) (nothing, error) {
				at, err := place(in)
				if err == nil {
					err = c.Objects.RemoveDefinition(ctx, c.caller, at)
				}
				return nothing{}, err
			}),
		do(Operation{ID: "checkDefinition", At: "GET /v1/definitions/{kind}/breaches", May: access.Reads,
			Summary: "List the objects that violate the definition that applies now"}, checkDefinition),
	},
}

// things maps the plural nouns in paths to kinds of objects.
var things = map[string]objects.Kind{
	"instances": objects.Instance, "images": objects.Image, "hosts": objects.Host, "groups": objects.Group,
}

// thing finds the object that the path names, if the caller sees it. It does not check that a group or an image exists;
// the store does.
func thing(ctx context.Context, c *call, in api.ObjectNamed) (objects.Ref, error) {
	ref := objects.Ref{Kind: things[in.Things], ID: in.ID}
	switch ref.Kind {
	case objects.Instance:
		st, err := c.find(ctx)
		ref.Project, ref.ID = st.Instance.Project, string(st.Instance.ID)
		return ref, err
	case objects.Host:
		if !c.caller.Operator() {
			return ref, errNoHosts
		}
		h, err := c.Cloud.Fleet.Record(ctx, ref.ID)
		if err == nil {
			c.action.about("", actions.Object{Kind: actions.Host, ID: string(h.ID), Name: h.Name})
		}
		ref.ID = string(h.ID)
		return ref, err
	case objects.Image, objects.Group:
		ref.Project = c.home()
		c.action.about(ref.Project, actions.Object{Kind: actions.Kind(ref.Kind), Name: ref.ID})
		return ref, nil
	}
	return ref, errNothing
}

func listObjects(ctx context.Context, c *call, in api.ObjectFilter) (list api.ObjectList, err error) {
	if in.Kind == objects.Host && !c.caller.Operator() {
		return list, errNoHosts
	}
	f, err := filter(in.Filtered)
	if err != nil {
		return list, err
	}
	all, err := c.Objects.List(ctx, c.caller, scopeOf(c, in.Kind), in.Kind, f)
	if err != nil {
		return list, err
	}
	if in.After != "" {
		all = slices.DeleteFunc(
			all,
			func(o objects.Object) bool { return comparePlaces(placeOf(o.Ref), in.After) <= 0 },
		)
	}
	list.Objects = all[:min(cmp.Or(in.Limit, pageLength), len(all))]
	if len(list.Objects) < len(all) {
		list.Next = placeOf(list.Objects[len(list.Objects)-1].Ref)
	}
	return list, nil
}

// scopeOf returns the scope of a list of objects of a kind: objects that belong to no project are in all of them.
func scopeOf(c *call, kind objects.Kind) access.Scope {
	if kind.InProject() {
		return listed(c)
	}
	return c.scope
}

// placeOf returns the sort key of an object in lists.
func placeOf(r objects.Ref) string { return string(r.Project) + "/" + r.ID }

// comparePlaces orders the keys of placeOf by project and ID.
func comparePlaces(a, b string) int {
	projectA, idA, _ := strings.Cut(a, "/")
	projectB, idB, _ := strings.Cut(b, "/")
	return cmp.Or(cmp.Compare(projectA, projectB), cmp.Compare(idA, idB))
}

// object reads the properties and tags of the object in the path.
func object(ctx context.Context, c *call, in api.ObjectNamed) (objects.Object, error) {
	ref, err := thing(ctx, c, in)
	if err != nil {
		return objects.Object{}, err
	}
	return c.Objects.Object(ctx, c.caller, c.scope, ref)
}

func getProperty(ctx context.Context, c *call, in api.PropertyNamed) (found api.PropertyValue, err error) {
	o, err := object(ctx, c, in.ObjectNamed)
	if err != nil {
		return found, err
	}
	v, there := o.Properties[in.Key]
	if !there {
		return found, api.Hidden("property", in.Key)
	}
	c.w.Header().Set("ETag", api.EntityTag(o.Generation))
	return api.PropertyValue{Value: v}, nil
}

// changeThing changes the properties and tags of the object in the path.
func changeThing(ctx context.Context, c *call, in api.ObjectBase, change objects.Change) (o objects.Object, err error) {
	ref, err := thing(ctx, c, in.ObjectNamed)
	if err != nil {
		return o, err
	}
	if err := checkImage(c, ref, change); err != nil {
		return o, err
	}
	change.Generation, err = base(in.Base, func() (int64, error) {
		now, err := c.Objects.Object(ctx, c.caller, c.scope, ref)
		return now.Generation, err
	})
	if err != nil {
		return o, err
	}
	return c.Objects.Change(ctx, c.caller, c.scope, ref, change)
}

// checkImage refuses to store properties of an image that the catalog does not have. The cloud has no records of
// images, so nothing else bounds how many a tenant could name.
func checkImage(c *call, ref objects.Ref, change objects.Change) error {
	if ref.Kind != objects.Image || c.caller.Operator() || len(change.Set)+len(change.AddTags) == 0 {
		return nil
	}
	if err := ref.Check(); err != nil { // a name, not an address
		return err
	}
	_, _, err := c.Images.Reference(ref.ID)
	return err
}

// violations describes which properties violate their definitions, with a JSON pointer where the body has the property.
func violations(c *call, v *objects.ViolationsError) *api.Problem {
	named := *v
	named.ID = cmp.Or(c.r.PathValue("id"), v.ID) // as the caller named the object
	p := api.NewProblem(api.SchemaViolation, named.Error())
	for _, one := range v.Violations[:min(len(v.Violations), bodies.MostFields)] {
		f := api.Field{Detail: "the property " + one.Key + " " + one.Problem}
		switch {
		case c.operation.ID == "changeObject":
			f = api.Field{Pointer: bodies.Pointer([]string{"set", one.Key}), Detail: one.Problem}
		case one.Key == c.r.PathValue("key"):
			f = api.Field{Pointer: "/value", Detail: one.Problem}
		}
		p.Errors = append(p.Errors, f)
	}
	return p
}
