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
const objectPage = "5000"

// objectPath returns the path of an object's properties and tags. Invalid: no object has this kind or name.
func objectPath(project croft.Project, kind objects.Kind, idOrName string) (string, error) {
	if err := kind.Check(); err != nil {
		return "", err
	}
	if idOrName == "" {
		return "", croft.Errorf(croft.NotFound, "there is no %s without a name", kind)
	}
	if !kind.InProject() {
		project = ""
	}
	return path(project, []string{"v1", string(kind) + "s", idOrName, "object"}), nil
}

// Object implements cloud.Objects.
func (l objectList) Object(ctx context.Context, project croft.Project, kind objects.Kind, idOrName string) (
	o objects.Object, err error) {
	at, err := objectPath(project, kind, idOrName)
	if err == nil {
		err = l.ask(ctx, http.MethodGet, at, nil, &o)
	}
	return o, err
}

// List implements cloud.Objects.
func (l objectList) List(ctx context.Context, project croft.Project, kind objects.Kind, f objects.Filter) (
	[]objects.Object, error) {
	if !kind.InProject() {
		project = ""
	}
	parameters := []string{"kind", string(kind), "limit", objectPage}
	for _, a := range f {
		parameters = append(parameters, "filter", a.String())
	}
	all := []objects.Object{}
	var counted pages
	for after := ""; ; {
		var page api.ObjectList
		err := l.ask(ctx, http.MethodGet,
			path(project, []string{"v1", "objects"}, append(parameters, "after", after)...), nil, &page)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Objects...)
		if err := counted.next(len(page.Objects), after, page.Next); err != nil {
			return nil, err
		}
		if after = page.Next; after == "" {
			return all, nil
		}
	}
}

// Change implements cloud.Objects.
func (l objectList) Change(ctx context.Context, project croft.Project, kind objects.Kind, idOrName string,
	c objects.Change) (o objects.Object, err error) {
	at, err := objectPath(project, kind, idOrName)
	if err != nil {
		return o, err
	}
	header := http.Header{}
	if c.Generation != nil {
		header = generation(*c.Generation)
	}
	err = l.askWith(ctx, http.MethodPatch, at, header, api.ObjectChange{Set: c.Set, Remove: c.Remove,
		AddTags: c.AddTags, RemoveTags: c.RemoveTags}, &o)
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

func definitionPath(at objects.Place) (string, error) {
	return path("", []string{"v1", "definitions", string(at.Kind)}, "level", string(at.Level)), at.Check()
}

// Effective implements cloud.Definitions.
func (d definitions) Effective(ctx context.Context, kind objects.Kind) (applies objects.Definition, err error) {
	if err := kind.Check(); err != nil {
		return applies, err
	}
	return applies, d.ask(ctx, http.MethodGet, path("", []string{"v1", "definitions", string(kind)}, "effective",
		"true"), nil, &applies)
}

// At implements cloud.Definitions.
func (d definitions) At(ctx context.Context, at objects.Place) (set objects.Definition, err error) {
	where, err := definitionPath(at)
	if err == nil {
		err = d.ask(ctx, http.MethodGet, where, nil, &set)
	}
	return set, err
}

// Set implements cloud.Definitions.
func (d definitions) Set(ctx context.Context, one objects.Definition) (set objects.Definition, err error) {
	where, err := definitionPath(one.Place)
	if err == nil {
		err = d.askWith(ctx, http.MethodPut, where, generation(one.Generation), api.NewDefinition{Unknown: one.Unknown,
			Properties: one.Properties, Permissions: one.Permissions}, &set)
	}
	return set, err
}

// Remove implements cloud.Definitions.
func (d definitions) Remove(ctx context.Context, at objects.Place) error {
	where, err := definitionPath(at)
	if err != nil {
		return err
	}
	return d.ask(ctx, http.MethodDelete, where, nil, nil)
}

// Check implements cloud.Definitions.
func (d definitions) Check(ctx context.Context, project croft.Project, kind objects.Kind) ([]objects.Breach, error) {
	if err := kind.Check(); err != nil {
		return nil, err
	}
	if !kind.InProject() {
		project = ""
	}
	var list api.BreachList
	err := d.ask(ctx, http.MethodGet, path(project, []string{"v1", "definitions", string(kind), "breaches"}), nil,
		&list)
	return list.Breaches, err
}

// generation returns the header of a change that requires a generation.
func generation(n int64) http.Header {
	return http.Header{"If-Match": {`"` + strconv.FormatInt(n, 10) + `"`}}
}
