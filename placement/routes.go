package placement

import (
	"net/http"
	"strings"
)

// endpoint is one method of one path.
type endpoint struct {
	policy  string
	since   version // the first version that has it
	hidden  int     // the status in older versions; 404 by default
	handle  func(*Server, *request) (*response, error)
	readsIn bool // the request has a JSON body
	sends   bool // the answer has a JSON body, which the client has to accept
	claims  bool // the answer depends on claims
}

// route is a path, in which * stands for one segment, and its methods.
type route struct {
	path    string
	allow   string
	methods map[string]endpoint
}

// routes lists the whole API.
var routes = []route{
	{"/", "GET", map[string]endpoint{
		"GET": {handle: (*Server).versions},
	}},
	{"/resource_classes", "GET, POST", map[string]endpoint{
		"GET":  {policy: "placement:resource_classes:list", since: 2, sends: true, handle: (*Server).listClasses},
		"POST": {policy: "placement:resource_classes:create", since: 2, readsIn: true, handle: (*Server).createClass},
	}},
	{"/resource_classes/*", "GET, PUT, DELETE", map[string]endpoint{
		"GET":    {policy: "placement:resource_classes:show", since: 2, sends: true, handle: (*Server).showClass},
		"PUT":    {policy: "placement:resource_classes:update", since: 2, handle: (*Server).putClass},
		"DELETE": {policy: "placement:resource_classes:delete", since: 2, handle: (*Server).deleteClass},
	}},
	{"/resource_providers", "GET, POST", map[string]endpoint{
		"GET":  {policy: "placement:resource_providers:list", sends: true, handle: (*Server).listProviders},
		"POST": {policy: "placement:resource_providers:create", readsIn: true, handle: (*Server).createProvider},
	}},
	{"/resource_providers/*", "GET, DELETE, PUT", map[string]endpoint{
		"GET":    {policy: "placement:resource_providers:show", sends: true, handle: (*Server).showProvider},
		"PUT":    {policy: "placement:resource_providers:update", readsIn: true, handle: (*Server).updateProvider},
		"DELETE": {policy: "placement:resource_providers:delete", handle: (*Server).deleteProvider},
	}},
	{"/resource_providers/*/inventories", "GET, POST, PUT, DELETE", map[string]endpoint{
		"GET": {policy: "placement:resource_providers:inventories:list", sends: true,
			handle: (*Server).listInventories},
		"POST": {policy: "placement:resource_providers:inventories:create", readsIn: true,
			handle: (*Server).createInventory},
		"PUT": {policy: "placement:resource_providers:inventories:update", readsIn: true,
			handle: (*Server).setInventories},
		"DELETE": {policy: "placement:resource_providers:inventories:delete", since: 5, hidden: 405,
			handle: (*Server).deleteInventories},
	}},
	{"/resource_providers/*/inventories/*", "GET, PUT, DELETE", map[string]endpoint{
		"GET": {policy: "placement:resource_providers:inventories:show", sends: true,
			handle: (*Server).showInventory},
		"PUT": {policy: "placement:resource_providers:inventories:update", readsIn: true,
			handle: (*Server).updateInventory},
		"DELETE": {policy: "placement:resource_providers:inventories:delete", handle: (*Server).deleteInventory},
	}},
	{"/resource_providers/*/usages", "GET", map[string]endpoint{
		"GET": {policy: "placement:resource_providers:usages", sends: true, claims: true,
			handle: (*Server).providerUsages},
	}},
	{"/resource_providers/*/aggregates", "GET, PUT", map[string]endpoint{
		"GET": {policy: "placement:resource_providers:aggregates:list", since: 1, sends: true,
			handle: (*Server).showAggregates},
		"PUT": {policy: "placement:resource_providers:aggregates:update", since: 1, readsIn: true,
			handle: (*Server).setAggregates},
	}},
	{"/resource_providers/*/allocations", "GET", map[string]endpoint{
		"GET": {policy: "placement:resource_providers:allocations:list", sends: true, claims: true,
			handle: (*Server).providerAllocations},
	}},
	{"/resource_providers/*/traits", "GET, PUT, DELETE", map[string]endpoint{
		"GET": {policy: "placement:resource_providers:traits:list", since: 6, sends: true,
			handle: (*Server).showProviderTraits},
		"PUT": {policy: "placement:resource_providers:traits:update", since: 6, readsIn: true,
			handle: (*Server).setProviderTraits},
		"DELETE": {policy: "placement:resource_providers:traits:delete", since: 6,
			handle: (*Server).deleteProviderTraits},
	}},
	{"/allocations", "POST", map[string]endpoint{
		"POST": {policy: "placement:allocations:manage", since: 13, readsIn: true, handle: (*Server).manageAllocations},
	}},
	{"/allocations/*", "GET, PUT, DELETE", map[string]endpoint{
		"GET":    {policy: "placement:allocations:list", sends: true, claims: true, handle: (*Server).showAllocations},
		"PUT":    {policy: "placement:allocations:update", readsIn: true, handle: (*Server).setAllocations},
		"DELETE": {policy: "placement:allocations:delete", handle: (*Server).deleteAllocations},
	}},
	{"/allocation_candidates", "GET", map[string]endpoint{
		"GET": {policy: "placement:allocation_candidates:list", since: 10, sends: true,
			handle: (*Server).listCandidates},
	}},
	{"/traits", "GET", map[string]endpoint{
		"GET": {policy: "placement:traits:list", since: 6, sends: true, handle: (*Server).listTraits},
	}},
	{"/traits/*", "GET, PUT, DELETE", map[string]endpoint{
		"GET":    {policy: "placement:traits:show", since: 6, handle: (*Server).showTrait},
		"PUT":    {policy: "placement:traits:update", since: 6, handle: (*Server).putTrait},
		"DELETE": {policy: "placement:traits:delete", since: 6, handle: (*Server).deleteTrait},
	}},
	{"/usages", "GET", map[string]endpoint{
		"GET": {policy: "placement:usages", since: 9, sends: true, claims: true, handle: (*Server).usages},
	}},
	{"/croft/providers", "GET", map[string]endpoint{
		"GET": {policy: "placement:resource_providers:list", sends: true, claims: true, handle: (*Server).listWhole},
	}},
	{"/croft/providers/*", "PUT", map[string]endpoint{
		"PUT": {policy: "placement:resource_providers:update", readsIn: true, handle: (*Server).putWholeProvider},
	}},
	{"/reshaper", "POST", map[string]endpoint{
		"POST": {policy: "placement:reshaper:reshape", since: 30, readsIn: true, handle: (*Server).reshape},
	}},
}

// findRoute finds the endpoint of a request, and stores the variable segments of its path. It returns the path's
// pattern too, for metrics, if one matches.
func findRoute(q *request) (string, endpoint, error) {
	path := q.r.URL.Path
	if path == "" {
		path = "/"
	}
	for _, r := range routes {
		values, ok := match(r.path, path)
		if !ok {
			continue
		}
		e, ok := r.methods[q.r.Method]
		if !ok {
			return r.path, e, &apiError{status: http.StatusMethodNotAllowed, allow: r.allow,
				detail: "The method specified is not allowed for this resource."}
		}
		q.path = values
		return r.path, e, nil
	}
	return "", endpoint{}, notFound("")
}

func match(pattern, path string) (values [2]string, ok bool) {
	n := 0
	for {
		want, restWant, moreWant := strings.Cut(pattern, "/")
		have, restHave, moreHave := strings.Cut(path, "/")
		switch {
		case want == "*" && have != "":
			values[n] = have
			n++
		case want != have:
			return values, false
		}
		if !moreWant || !moreHave {
			return values, moreWant == moreHave
		}
		pattern, path = restWant, restHave
	}
}

// check checks what can be checked before the handler runs: the version, and the media types of body and answer.
func (e endpoint) check(q *request) error {
	if q.version < e.since {
		if e.hidden == http.StatusMethodNotAllowed {
			return &apiError{status: http.StatusMethodNotAllowed}
		}
		return notFound("")
	}
	if e.readsIn {
		if err := q.wantJSON(); err != nil {
			return err
		}
	}
	if e.sends && preferred(q.accept, "application/json") == "" {
		return &apiError{status: http.StatusNotAcceptable, detail: "Only application/json is provided"}
	}
	return nil
}

// wantJSON refuses a body that is not declared to be JSON.
func (q *request) wantJSON() error {
	t := q.contentType()
	if t == "application/json" {
		return nil
	}
	if t == "" {
		t = "None"
	}
	return &apiError{status: http.StatusUnsupportedMediaType,
		detail: "The media type " + t + " is not supported, use application/json"}
}
