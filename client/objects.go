package client

import (
	"context"

	"croft"
	"croft/control/api"
	"croft/tenant/objects"
)

// objectPage is the number of objects in a page.
const objectPage = 5000

// AllObjects lists the objects of a kind that the filter chooses, with all pages; an empty project means all projects.
// It leaves out objects without properties and tags.
func (c *Client) AllObjects(ctx context.Context, project croft.Project, kind objects.Kind, f objects.Filter) (
	[]objects.Object, error) {
	in := api.ObjectFilter{InProject: InProjectOf(kind, project), Kind: kind, Page: api.Page{Limit: objectPage}}
	for _, a := range f {
		in.Filter = append(in.Filter, a.String())
	}
	all := []objects.Object{}
	var counted pages
	for {
		page, err := c.ListObjects(ctx, in)
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
