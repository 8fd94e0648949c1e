package client

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"croft"
	"croft/control/api"
	"croft/tenant/objects"
)

// objectList implements cloud.Objects.
type objectList struct{ *Client }

// objectPage is the number of objects in a page.
const objectPage = 5000

// objectNamed names an object. Invalid: no object has this kind. NotFound: no object has this name.
func objectNamed(project croft.Project, kind objects.Kind, idOrName string) (api.ObjectNamed, error) {
	if err := kind.Check(); err != nil {
		return api.ObjectNamed{}, err
	}
	if idOrName == "" {
		return api.ObjectNamed{}, croft.Errorf(croft.NotFound, "there is no %s without a name", kind)
	}
	return api.ObjectNamed{InProject: ofKind(project, kind), Things: string(kind) + "s", ID: idOrName}, nil
}

// ofKind returns the project of objects of a kind, which may belong to none.
func ofKind(project croft.Project, kind objects.Kind) api.InProject {
	if !kind.InProject() {
		project = ""
	}
	return api.InProject{Project: project}
}

// Object implements cloud.Objects.
func (l objectList) Object(ctx context.Context, project croft.Project, kind objects.Kind, idOrName string) (
	objects.Object, error) {
	named, err := objectNamed(project, kind, idOrName)
	if err != nil {
		return objects.Object{}, err
	}
	return l.GetObject(ctx, named)
}

// List implements cloud.Objects.
func (l objectList) List(ctx context.Context, project croft.Project, kind objects.Kind, f objects.Filter) (
	[]objects.Object, error) {
	in := api.ObjectFilter{InProject: ofKind(project, kind), Kind: kind, Page: api.Page{Limit: objectPage}}
	for _, a := range f {
		in.Filter = append(in.Filter, a.String())
	}
	all := []objects.Object{}
	var counted pages
	for {
		page, err := l.ListObjects(ctx, in)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Objects...)
		if err := counted.next(len(page.Objects), in.After, page.Next); err != nil {
			return nil, err
		}
		if in.After = page.Next; in.After == "" {
			return all, nil
		}
	}
}

// Change implements cloud.Objects.
func (l objectList) Change(ctx context.Context, project croft.Project, kind objects.Kind, idOrName string,
	c objects.Change) (o objects.Object, err error) {
	named, err := objectNamed(project, kind, idOrName)
	if err != nil {
		return o, err
	}
	o, err = l.ChangeObject(ctx, api.ObjectChange{ObjectBase: api.ObjectBase{ObjectNamed: named, Base: c.Generation},
		Set: c.Set, Remove: c.Remove, AddTags: c.AddTags, RemoveTags: c.RemoveTags})
	return o, violations(objects.Ref{Kind: kind, Project: project, ID: idOrName}, err)
}

// violations turns the API's error for an object that would violate its definition into the error of package objects.
func violations(ref objects.Ref, err error) error {
	p, is := errors.AsType[*api.Problem](err)
	if !is || p.Code != api.SchemaViolation || len(p.Errors) == 0 {
		return err
	}
	broken := &objects.ViolationsError{Ref: ref}
	for _, f := range p.Errors {
		key, ours := strings.CutPrefix(f.Pointer, "/set/")
		if !ours {
			return err
		}
		broken.Violations = append(broken.Violations, objects.Violation{Key: key, Problem: f.Detail})
	}
	return croft.Errorf(croft.Invalid, "%w", broken)
}

// definitions implements cloud.Definitions.
type definitions struct{ *Client }

// Effective implements cloud.Definitions.
func (d definitions) Effective(ctx context.Context, kind objects.Kind) (objects.Definition, error) {
	if err := kind.Check(); err != nil {
		return objects.Definition{}, err
	}
	return d.GetDefinition(ctx, api.DefinitionChosen{DefinitionNamed: api.DefinitionNamed{Kind: kind}, Effective: true})
}

// At implements cloud.Definitions.
func (d definitions) At(ctx context.Context, at objects.Place) (objects.Definition, error) {
	if err := at.Check(); err != nil {
		return objects.Definition{}, err
	}
	return d.GetDefinition(ctx, api.DefinitionChosen{DefinitionNamed: api.DefinitionNamed{Kind: at.Kind,
		Level: at.Level}})
}

// Set implements cloud.Definitions.
func (d definitions) Set(ctx context.Context, one objects.Definition) (objects.Definition, error) {
	if err := one.Place.Check(); err != nil {
		return objects.Definition{}, err
	}
	return d.SetDefinition(ctx, api.NewDefinition{
		DefinitionNamed: api.DefinitionNamed{Kind: one.Kind, Level: one.Level}, Base: &one.Generation,
		Unknown: one.Unknown, Properties: one.Properties, Permissions: one.Permissions})
}

// Remove implements cloud.Definitions.
func (d definitions) Remove(ctx context.Context, at objects.Place) error {
	if err := at.Check(); err != nil {
		return err
	}
	return d.RemoveDefinition(ctx, api.DefinitionNamed{Kind: at.Kind, Level: at.Level})
}

// Check implements cloud.Definitions.
func (d definitions) Check(ctx context.Context, project croft.Project, kind objects.Kind) ([]objects.Breach, error) {
	if err := kind.Check(); err != nil {
		return nil, err
	}
	list, err := d.CheckDefinition(ctx, api.KindInProject{InProject: ofKind(project, kind), Kind: kind})
	return list.Breaches, err
}

// generation returns the header of a change that requires a generation.
func generation(n int64) http.Header {
	return http.Header{"If-Match": {`"` + strconv.FormatInt(n, 10) + `"`}}
}
