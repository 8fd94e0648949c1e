package control

import (
	"croft/control/api"
	"croft/tenant/access"
	"croft/tenant/objects"
)

// pageLength is the default length of a page.
const pageLength = 500

// listed returns the scope of a list: the project of the request, else all projects that the caller sees.
func listed(c *call) access.Scope {
	if c.project != "" {
		return access.Within(c.project)
	}
	return c.scope
}

// filter parses the filters of a list.
func filter(in api.Filtered) (objects.Filter, error) {
	f, err := objects.ParseFilter(in.Filter)
	if err != nil {
		return nil, api.NewProblem(api.BadQuery, err.Error())
	}
	return f, nil
}
