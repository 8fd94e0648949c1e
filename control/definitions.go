package control

import (
	"cmp"
	"context"
	"maps"

	"croft/control/api"
	"croft/tenant/objects"
)

// place returns the kind and level of the definition that the request names.
func place(in api.DefinitionNamed) (objects.Place, error) {
	at := objects.Place{Level: cmp.Or(in.Level, objects.Partition), Kind: in.Kind}
	return at, at.Check()
}

func getDefinition(ctx context.Context, c *call, in api.DefinitionChosen) (d objects.Definition, err error) {
	if in.Effective {
		if in.Level != "" {
			return d, api.NewProblem(api.BadQuery,
				"the parameters effective and level are both there: give level for what is set there, or effective for "+
					"what applies")
		}
		d, err = c.Objects.Definition(ctx, in.Kind)
		return visibleDefinition(c, d), err
	}
	at, err := place(in.DefinitionNamed)
	if err != nil {
		return d, err
	}
	d, err = c.Objects.DefinitionAt(ctx, at)
	return visibleDefinition(c, d), err
}

// visibleDefinition returns a definition as the caller may see it.
func visibleDefinition(c *call, d objects.Definition) objects.Definition {
	d.Permissions = permissions(c, d.Permissions)
	d.Properties = maps.Clone(d.Properties)
	for key, p := range d.Properties {
		p.Permissions = permissions(c, p.Permissions)
		d.Properties[key] = p
	}
	return d
}

// permissions removes the permissions for projects that the caller does not see. If it removes all of them, it leaves
// one that grants nothing, because a definition without permissions allows everything.
func permissions(c *call, all []objects.Permission) []objects.Permission {
	var seen []objects.Permission
	for _, p := range all {
		if p.Project == "" || c.scope.Sees(p.Project) {
			seen = append(seen, p)
		}
	}
	if len(all) > 0 && len(seen) == 0 {
		return []objects.Permission{{Value: objects.Nothing}}
	}
	return seen
}

func setDefinition(ctx context.Context, c *call, in api.NewDefinition) (d objects.Definition, err error) {
	at, err := place(in.DefinitionNamed)
	if err != nil {
		return d, err
	}
	base, err := base(in.Base, func() (int64, error) {
		d, err := c.Objects.DefinitionAt(ctx, at)
		return d.Generation, err
	})
	if err != nil {
		return d, err
	}
	d, err = c.Objects.SetDefinition(ctx, c.caller, objects.Definition{Place: at,
		Unknown: cmp.Or(in.Unknown, objects.Allow), Properties: in.Properties, Permissions: in.Permissions,
		Generation: *base})
	return visibleDefinition(c, d), err
}

func checkDefinition(ctx context.Context, c *call, in api.KindInProject) (list api.BreachList, err error) {
	if in.Kind == objects.Host && !c.caller.Operator() {
		return list, errNoHosts
	}
	list.Breaches, err = c.Objects.Check(ctx, c.caller, scopeOf(c, in.Kind), in.Kind)
	return list, err
}
