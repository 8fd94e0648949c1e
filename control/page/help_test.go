package page

import (
	"slices"
	"strings"
	"testing"
)

// TestEveryViewHasItsSectionOfTheDocuments checks the table of help against the views and the documents.
func TestEveryViewHasItsSectionOfTheDocuments(t *testing.T) {
	all, err := documents()
	if err != nil {
		t.Fatal(err)
	}
	patterns := []string{"GET " + Root + "/login", "GET " + Root + "/link/{link}", "POST " + Root + "/choose",
		"GET " + docsRoot}
	for _, v := range views() {
		patterns = append(patterns, v.at)
		section := strings.TrimPrefix(v.at[strings.Index(v.at, " ")+1:], Root)
		if section = strings.TrimPrefix(section, "/"); section == "logout" || section == "theme" || section == "" {
			continue // changes that show nothing
		}
		section, _, _ = strings.Cut(section, "/")
		if _, is := help["/"+section]; !is {
			t.Errorf("%s: name the document about /%s in help", v.at, section)
		}
	}
	for path, to := range help {
		if !slices.ContainsFunc(patterns, func(p string) bool { return strings.Contains(p, " "+Root+path) }) {
			t.Errorf("help has %s, where no view is", path)
		}
		if to == "" {
			continue // the index
		}
		name, anchor, _ := strings.Cut(to, "#")
		if d, is := all[name]; !is {
			t.Errorf("help for %s is %s, which does not exist", path, name)
		} else if anchor != "" && !d.Has(anchor) {
			t.Errorf("help for %s is #%s, and %s has no such heading", path, anchor, name)
		}
	}
	for pattern, want := range map[string]string{
		"":                             docsRoot + "/page",
		"GET /ui/":                     docsRoot + "/page",
		"GET /ui/instances/{id}":       docsRoot + "/page#instances",
		"POST /ui/hosts/{id}/{action}": docsRoot + "/operations#hosts",
		"GET /ui/docs/{document}":      docsRoot,
	} {
		if got := helpFor(pattern); got != want {
			t.Errorf("help for %q is %s, want %s", pattern, got, want)
		}
	}
}
