package page

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"croft"
	"croft/control/page/manual"
	"croft/docs"
)

// docsRoot is the path of the documents for users, which all visitors may read.
const docsRoot = Root + "/docs"

// help maps paths of views, below Root, to the sections of the documents about them. Of the entries that the path of a
// view begins with, the longest counts.
var help = map[string]string{
	"":                         "page",
	"/login":                   "page#log-in",
	"/link":                    "page#log-in",
	"/choose":                  "page#log-in",
	"/keys":                    "page#keys",
	"/docs":                    "",
	"/instances":               "page#instances",
	"/instances/new":           "page#new-instance",
	"/instances/{id}/log":      "using#instances",
	"/instances/{id}/{action}": "using#what-cannot-be-undone",
	"/hosts":                   "page#hosts",
	"/hosts/{id}/{action}":     "operations#hosts",
	"/hosts/{id}/leftovers":    "operations#a-host-dies",
	"/dashboard":               "page#dashboard",
	"/project":                 "page#project",
	"/pools":                   "tenants#pools-and-tickets",
	"/clusters":                "clusters",
	"/images":                  "images#the-clouds-own-catalog",
	"/volumes":                 "volumes",
	"/backups":                 "backups",
	"/policies":                "crush#policies",
	"/log":                     "tenants#the-action-log",
	"/peers":                   "federation#peers",
	"/more":                    "page",
	"/try":                     "page#help",
	"/sites":                   "clusters#which-site",
	"/sizes":                   "using#instances",
	"/claims":                  "operations-instances#claims-are-held",
	"/aggregates":              "operations-instances#aggregates",
	"/capabilities":            "operations-instances",
	"/definitions":             "properties#definitions",
	"/invitations":             "adding-a-host",
	"/audit":                   "operations#when-records-do-not-agree",
}

// helpFor returns the address of the section about the view that a pattern, of a method and a path, leads to.
func helpFor(pattern string) string {
	_, path, _ := strings.Cut(pattern, " ")
	path = strings.TrimPrefix(path, Root)
	for end := len(path); ; end = strings.LastIndexByte(path[:end], '/') {
		if section, is := help[path[:end]]; is && section != "" {
			return docsRoot + "/" + section
		} else if is || end == 0 {
			return docsRoot
		}
	}
}

// documents returns the documents and the reference of the API, which are rendered when the first one is read.
var documents = sync.OnceValues(func() (map[string]manual.Document, error) {
	all, err := manual.Render(docs.Files, docsRoot, "docs")
	if err != nil {
		return nil, err
	}
	calls, err := reference()
	if err != nil {
		return nil, err
	}
	all[calls.Name] = calls
	return all, nil
})

// manualPage is what the page of a document shows.
type manualPage struct {
	manual.Document
	Index bool
	Login string // where a reader who is not logged in does that
}

// showDocument answers with a document, also to readers who are not logged in.
func (s *Server) showDocument(w http.ResponseWriter, r *http.Request) {
	all, err := documents()
	if err != nil {
		s.fail(w, r, err)
		return
	}
	name := r.PathValue("document")
	if name == "" {
		name = manual.Index
	}
	d, exists := all[name]
	if !exists || name == r.PathValue("document") && name == manual.Index {
		s.fail(w, r, croft.Errorf(croft.NotFound, "there is no such document: %s lists them", docsRoot))
		return
	}
	ctx, cancel := context.WithTimeout(from(r), answerTime)
	defer cancel()
	f := frame{Theme: theme(r), Help: docsRoot}
	if v, err := s.visit(ctx, w, r); err == nil {
		f = v.frame("", nil)
	}
	f.Title = d.Title
	page := manualPage{Document: d, Index: name == manual.Index}
	if f.Caller == nil {
		page.Login = Root + "/login?" + url.Values{"next": {r.URL.Path}}.Encode()
	}
	f.Data = page
	if err := s.render(w, http.StatusOK, "document", f); err != nil {
		s.fail(w, r, err)
	}
}
