package control

import (
	"strconv"
	"strings"

	"croft/access"
	"croft/control/api"
	"croft/objects"
)

// pageLength is the default length of a page.
const pageLength = 500

// listed is the scope of a list: the project of the request, else all that the caller sees.
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

// limit is how many things the request wants on a page.
func limit(c *call) int {
	n, err := strconv.Atoi(c.query.Get("limit")) // checked by the document
	if err != nil {
		return pageLength
	}
	return n
}

// tagged sets the header for a generation, which If-Match repeats.
func tagged(c *call, generation int64) {
	c.w.Header().Set("ETag", `"`+strconv.FormatInt(generation, 10)+`"`)
}

// generation returns the generation in the header If-Match; nil: any.
func generation(c *call) (*int64, error) {
	match := c.r.Header.Get("If-Match")
	if match == "" {
		return nil, nil
	}
	n, err := strconv.ParseInt(strings.Trim(match, `"`), 10, 64)
	if err != nil || n < 0 {
		return nil, api.NewProblem(api.BadRequest, "If-Match "+strconv.Quote(api.Clip(match))+
			" is no generation, such as the header ETag of the answers has")
	}
	return &n, nil
}
