package control

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"croft"
	"croft/control/api"
	"croft/control/bodies"
	"croft/control/cloud"
	"croft/tenant/objects"
)

// things maps the plural nouns in paths to kinds of objects.
var things = map[string]objects.Kind{
	"instances": objects.Instance, "images": objects.Image, "hosts": objects.Host, "groups": objects.Group,
}

// thing finds the object that the path names, if the caller sees it. It does not check that a group or an image exists;
// the store does.
func thing(ctx context.Context, c *call) (objects.Ref, error) {
	ref := objects.Ref{Kind: things[c.r.PathValue("things")], ID: c.r.PathValue("id")}
	switch ref.Kind {
	case objects.Instance:
		st, err := c.find(ctx)
		ref.Project, ref.ID = st.Instance.Project, string(st.Instance.ID)
		return ref, err
	case objects.Host:
		if !c.caller.Operator() {
			return ref, errNoHosts
		}
		id, err := cloud.HostCalled(ctx, c.Cloud.Hosts, ref.ID)
		ref.ID = string(id)
		return ref, err
	case objects.Image, objects.Group:
		ref.Project = c.home()
		return ref, nil
	}
	return ref, errNothing
}

func listObjects(c *call) error {
	kind := objects.Kind(c.query.Get("kind"))
	if kind == objects.Host && !c.caller.Operator() {
		return errNoHosts
	}
	f, err := filter(c)
	if err != nil {
		return err
	}
	scope := listed(c)
	if !kind.InProject() {
		scope = c.scope
	}
	ctx, cancel := c.brief()
	defer cancel()
	all, err := c.Objects.List(ctx, c.caller, scope, kind, f)
	if err != nil {
		return err
	}
	if after := c.query.Get("after"); after != "" {
		all = slices.DeleteFunc(all, func(o objects.Object) bool { return comparePlaces(placeOf(o.Ref), after) <= 0 })
	}
	list := api.ObjectList{Objects: all[:min(limit(c), len(all))]}
	if len(list.Objects) < len(all) {
		list.Next = placeOf(list.Objects[len(list.Objects)-1].Ref)
	}
	return c.answer(http.StatusOK, list)
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
func object(c *call) (objects.Object, error) {
	ctx, cancel := c.brief()
	defer cancel()
	ref, err := thing(ctx, c)
	if err != nil {
		return objects.Object{}, err
	}
	return c.Objects.Object(ctx, c.caller, c.scope, ref)
}

func getObject(c *call) error {
	o, err := object(c)
	if err != nil {
		return err
	}
	api.Tag(c.w.Header(), o.Generation)
	return c.answer(http.StatusOK, o)
}

func getProperty(c *call) error {
	o, err := object(c)
	if err != nil {
		return err
	}
	v, there := o.Properties[c.r.PathValue("key")]
	if !there {
		return api.Hidden("property", c.r.PathValue("key"))
	}
	api.Tag(c.w.Header(), o.Generation)
	return c.answer(http.StatusOK, api.PropertyValue{Value: v})
}

func changeObject(c *call) error {
	var given api.ObjectChange
	if err := c.body(&given); err != nil {
		return err
	}
	return changeThing(c, objects.Change{Set: given.Set, Remove: given.Remove, AddTags: given.AddTags,
		RemoveTags: given.RemoveTags})
}

func setProperty(c *call) error {
	var given api.PropertyValue
	if err := c.body(&given); err != nil {
		return err
	}
	return changeThing(c, objects.Change{Set: map[string]objects.Value{c.r.PathValue("key"): given.Value}})
}

func removeProperty(c *call) error {
	return changeThing(c, objects.Change{Remove: []string{c.r.PathValue("key")}})
}

func addTag(c *call) error {
	return changeThing(c, objects.Change{AddTags: []string{c.r.PathValue("tag")}})
}

func removeTag(c *call) error {
	return changeThing(c, objects.Change{RemoveTags: []string{c.r.PathValue("tag")}})
}

// changeThing changes the properties and tags of the object in the path.
func changeThing(c *call, change objects.Change) error {
	ctx, cancel := c.brief()
	defer cancel()
	var err error
	if change.Generation, err = api.Match(c.r.Header); err != nil {
		return err
	}
	ref, err := thing(ctx, c)
	if err != nil {
		return err
	}
	if err := checkImage(c, ref, change); err != nil {
		return err
	}
	o, err := c.Objects.Change(ctx, c.caller, c.scope, ref, change)
	switch {
	case errors.Is(err, croft.Conflict) && change.Generation != nil:
		return api.NewProblem(api.GenerationMismatch, err.Error())
	case err != nil:
		return err
	}
	api.Tag(c.w.Header(), o.Generation)
	return c.answer(http.StatusOK, o)
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
	_, err := c.Images.Reference(ref.ID)
	return err
}

// violations describes which properties violate their definitions, with a JSON pointer where the body has the property.
func violations(c *call, v *objects.ViolationsError) *api.Problem {
	p := api.NewProblem(api.SchemaViolation, v.Error())
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
