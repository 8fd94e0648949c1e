package httpapi

import (
	"net/http"
	"path"
)

// ExactPaths calls otherwise for a path with empty or dot elements, and next for all others. http.ServeMux would
// redirect the client to another path, which it did not request.
func ExactPaths(next, otherwise http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := r.URL.EscapedPath(); p != path.Clean(p) {
			otherwise.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}
