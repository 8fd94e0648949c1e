package httpapi

import (
	"net/http"
	"path"
)

// ExactPaths answers by otherwise where a path has empty parts or leads by dots, and by next elsewhere. http.ServeMux
// would redirect the client to another path, and so to what it did not name.
func ExactPaths(next, otherwise http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := r.URL.EscapedPath(); p != path.Clean(p) {
			otherwise.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}
