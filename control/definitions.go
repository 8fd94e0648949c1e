package control

import (
	"errors"
	"maps"
	"net/http"

	"croft"
	"croft/control/api"
	"croft/tenant/objects"
)

// place returns the kind and level of the definition that the request names.
func place(c *call) (objects.Place, error) {
	at := objects.Place{Level: objects.Partition, Kind: objects.Kind(c.r.PathValue("kind"))}
	if level := c.query.Get("level"); level != "" {
		at.Level = objects.Level(level)
	}
	return at, at.Check()
}

func getDefinition(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	if c.flag("effective") {
		if c.query.Has("level") {
			return api.NewProblem(api.BadQuery,
				"the parameters effective and level are both there: give level for what is set there, or effective for "+
					"what applies")
		}
		d, err := c.Objects.Definition(ctx, objects.Kind(c.r.PathValue("kind")))
		return answerDefinition(c, d, err)
	}
	at, err := place(c)
	if err != nil {
		return err
	}
	d, err := c.Objects.DefinitionAt(ctx, at)
	return answerDefinition(c, d, err)
}

// answerDefinition answers with a definition as the caller may see it, and with its generation for If-Match.
func answerDefinition(c *call, d objects.Definition, err error) error {
	if err != nil {
		return err
	}
	d.Permissions = permissions(c, d.Permissions)
	d.Properties = maps.Clone(d.Properties)
	for key, p := range d.Properties {
		p.Permissions = permissions(c, p.Permissions)
		d.Properties[key] = p
	}
	api.Tag(c.w.Header(), d.Generation)
	return c.answer(http.StatusOK, d)
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

func setDefinition(c *call) error {
	given := api.NewDefinition{Unknown: objects.Allow}
	if err := c.body(&given); err != nil {
		return err
	}
	at, err := place(c)
	if err != nil {
		return err
	}
	base, err := api.Match(c.r.Header)
	if err != nil {
		return err
	}
	if base == nil {
		return api.NewProblem(api.GenerationRequired,
			"name the generation of the definition that this replaces in the header If-Match; 0 if none is set")
	}
	ctx, cancel := c.brief()
	defer cancel()
	d, err := c.Objects.SetDefinition(ctx, c.caller, objects.Definition{Place: at, Unknown: given.Unknown,
		Properties: given.Properties, Permissions: given.Permissions, Generation: *base})
	if errors.Is(err, croft.Conflict) {
		return api.NewProblem(api.GenerationMismatch, err.Error())
	}
	return answerDefinition(c, d, err)
}

func removeDefinition(c *call) error {
	at, err := place(c)
	if err != nil {
		return err
	}
	ctx, cancel := c.brief()
	defer cancel()
	if err := c.Objects.RemoveDefinition(ctx, c.caller, at); err != nil {
		return err
	}
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

func checkDefinition(c *call) error {
	kind := objects.Kind(c.r.PathValue("kind"))
	if kind == objects.Host && !c.caller.Operator() {
		return errNoHosts
	}
	scope := listed(c)
	if !kind.InProject() {
		scope = c.scope
	}
	ctx, cancel := c.brief()
	defer cancel()
	all, err := c.Objects.Check(ctx, c.caller, scope, kind)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, api.BreachList{Breaches: all})
}
