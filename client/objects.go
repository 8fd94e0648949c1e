package client

import (
	"context"

	"croft"
	"croft/control/api"
	"croft/tenant/objects"
)

// AllObjects lists the objects of a kind that the filter chooses, with all pages; an empty project means all projects.
// It leaves out objects without properties and tags.
func (c *Client) AllObjects(ctx context.Context, project croft.Project, kind objects.Kind, f objects.Filter) (
	[]objects.Object, error) {
	in := api.ObjectFilter{InProject: InProjectOf(kind, project), Kind: kind}
	for _, a := range f {
		in.Filter = append(in.Filter, a.String())
	}
	return allPages(&in.Page, func() ([]objects.Object, string, error) {
		page, err := c.ListObjects(ctx, in)
		return page.Objects, page.Next, err
	})
}

// InProjectOf returns the project of objects of a kind, which may belong to none.
func InProjectOf(kind objects.Kind, project croft.Project) api.InProject {
	if !kind.InProject() {
		project = ""
	}
	return api.InProject{Project: project}
}

// ObjectOf names an object of a kind by its UUID or name, and by its project if its kind belongs to one.
func ObjectOf(project croft.Project, kind objects.Kind, idOrName string) api.ObjectNamed {
	return api.ObjectNamed{InProject: InProjectOf(kind, project), Things: string(kind) + "s", ID: idOrName}
}
