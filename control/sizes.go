package control

import (
	"context"
	"strings"

	"croft"
	"croft/control/actions"
	"croft/control/api"
	"croft/schedule"
	"croft/tenant/access"
)

var sizeOperations = noun{Tag: "sizes", Object: actions.Size,
	Description: "Named sizes of instances. Operators write them, and all callers read them and may name them in " +
		"requests. An instance keeps the resources and the name of the size that it was made with, also when the size " +
		"is renamed or removed.",
	Operations: []Operation{
		list(Operation{ID: "listSizes", At: "GET /v1/sizes", May: access.EveryHuman, // all may choose by them
			Summary: "List the named sizes of instances"},
			func(ctx context.Context, c *call, _ nothing) (list api.SizeList, err error) {
				list.Sizes, err = c.Cloud.NamedSizes.List(ctx)
				return list, err
			}),
		do(Operation{ID: "createSize", At: "POST /v1/sizes", May: access.Operates, Status: 201, Conflict: api.NameTaken,
			Summary:     "Create a named size",
			Description: "Repeating the request has the same effect."},
			func(ctx context.Context, c *call, in api.NewSize) (croft.Size, error) {
				c.action.about("", actions.Object{Kind: actions.Size, Name: in.Name})
				wanted := croft.Size{Name: in.Name, Resources: in.Resources, Default: in.Default}
				if _, err := schedule.ParseQuery(wanted.Resources.String()); err != nil {
					return wanted, err
				}
				return c.Cloud.NamedSizes.Create(ctx, wanted)
			}),
		do(Operation{ID: "getSize", At: "GET /v1/sizes/{name}", May: access.EveryHuman, Summary: "Get a size"},
			func(ctx context.Context, c *call, in api.SizeNamed) (croft.Size, error) {
				return c.Cloud.NamedSizes.Find(ctx, in.Name)
			}),
		do(Operation{ID: "changeSize", At: "PATCH /v1/sizes/{name}", May: access.Operates, Conflict: api.NameTaken,
			Summary:     "Rename a size, or make it the default",
			Description: "The resources of a size do not change: remove it, and create another one."},
			func(ctx context.Context, c *call, in api.SizeChange) (croft.Size, error) {
				return c.Cloud.NamedSizes.Change(ctx, in.Name, croft.SizeChange{Name: in.To, Default: in.Default})
			}),
		do(Operation{ID: "removeSize", At: "DELETE /v1/sizes/{name}", May: access.Operates,
			Summary: "Remove a size; instances keep what they have"},
			func(ctx context.Context, c *call, in api.SizeNamed) (nothing, error) {
				return nothing{}, c.Cloud.NamedSizes.Remove(ctx, in.Name)
			}),
	},
}

// query returns the query of a request, and the name of the size that its amounts come from; empty: they come from the
// query itself, or are built in.
func (c *call) queryOf(ctx context.Context, given api.InstanceRequest) (q schedule.Query, size string, err error) {
	var s croft.Size
	switch {
	case given.Size != "":
		s, err = c.Cloud.NamedSizes.Find(ctx, given.Size)
	case given.Query == "":
		s, err = c.Cloud.NamedSizes.Default(ctx)
	default:
		q, err = schedule.ParseQuery(given.Query)
		return q, "", err
	}
	if err != nil {
		return q, "", err
	}
	text := "resources=" + s.Resources.String()
	if given.Query != "" {
		first, _, _ := strings.Cut(given.Query, "&")
		if word, _, constraint := strings.Cut(strings.TrimSpace(first), "="); !constraint || word == "resources" {
			return q, "", croft.Errorf(croft.Invalid, "the amounts are those of size %s: leave %q out of the query, or the size",
				s.Name, first)
		}
		text += "&" + given.Query
	}
	q, err = schedule.ParseQuery(text)
	return q, s.Name, err
}
