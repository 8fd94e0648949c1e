package placement

// versions serves GET /.
func versions(q *request) (*response, error) {
	type version struct {
		ID     string `json:"id"`
		Max    string `json:"max_version"`
		Min    string `json:"min_version"`
		Status string `json:"status"`
		Links  []link `json:"links"`
	}
	only := version{"v" + minVersion.String(), maxVersion.String(), minVersion.String(), "CURRENT",
		[]link{{"self", ""}}}
	return q.ok(struct {
		Versions []version `json:"versions"`
	}{[]version{only}}, 0), nil
}
