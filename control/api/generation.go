package api

import (
	"net/http"
	"strconv"
	"strings"
)

// Tag sets the header ETag to a generation, for If-Match in the next request.
func Tag(h http.Header, generation int64) { h.Set("ETag", `"`+strconv.FormatInt(generation, 10)+`"`) }

// Match returns the generation in the header If-Match; nil: any.
func Match(h http.Header) (*int64, error) {
	match := h.Get("If-Match")
	if match == "" {
		return nil, nil
	}
	n, err := strconv.ParseInt(strings.Trim(match, `"`), 10, 64)
	if err != nil || n < 0 {
		return nil, NewProblem(BadRequest, "If-Match "+strconv.Quote(Clip(match))+
			" is no generation, such as the header ETag of the answers has")
	}
	return &n, nil
}
