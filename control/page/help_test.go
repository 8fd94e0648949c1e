package page

import (
	"encoding/json"
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

// TestBodiesToStartWithFitTheDocument checks the table of bodies in the reference against the schemas.
func TestBodiesToStartWithFitTheDocument(t *testing.T) {
	for id, text := range starts {
		var body map[string]any
		if err := json.Unmarshal([]byte(text), &body); err != nil {
			t.Errorf("%s: %v", id, err)
		}
		o := operations()[id]
		for name, value := range body {
			kinds := map[string]bool{}
			switch of, _, _ := o.property(name); value.(type) {
			case string:
				kinds["string"] = of.kind() == "string"
			case float64:
				kinds["number"] = of.kind() == "integer"
			default:
				kinds["others"] = of.kind() == "object" || of.Items != nil
			}
			for kind, fits := range kinds {
				if !fits {
					t.Errorf("%s takes no %s as %s", id, kind, name)
				}
			}
		}
		for _, name := range o.Body.Required {
			if _, is := body[name]; !is {
				t.Errorf("%s lacks %s", id, name)
			}
		}
	}
}
