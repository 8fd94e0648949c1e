package placement

import "fmt"

// versions is GET /.
func (s *Server) versions(q *request) (*response, error) {
	return q.ok(fmt.Appendf(nil, `{"versions": [{"id": "v%s", "max_version": "%s", "min_version": "%s", "status": "CURRENT", "links": [{"rel": "self", "href": ""}]}]}`,
		minVersion, maxVersion, minVersion), 0), nil
}
