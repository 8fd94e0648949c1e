package control

import (
	"strconv"

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

// filter reads the filters of the request.
func filter(c *call) (objects.Filter, error) {
	f, err := objects.ParseFilter(c.query["filter"])
	if err != nil {
		return nil, api.NewProblem(api.BadQuery, err.Error())
	}
	return f, nil
}

// limit returns the page size that the request asks for.
func limit(c *call) int {
	n, err := strconv.Atoi(c.query.Get("limit")) // checked by the document
	if err != nil {
		return pageLength
	}
	return n
}
