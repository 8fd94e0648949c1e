package placement

import (
	"net/http"
	"strings"

	"croft/placement/ledger"
)

// endpoint is one method on one path.
type endpoint struct {
	policy  string  // policy name without the prefix "placement:"
	since   version // first version with the endpoint
	hidden  int     // status in older versions; 404 by default
	handle  func(*request) (*response, error)
	readsIn bool // the request has a JSON body
	sends   bool // the answer has a JSON body, which the client must accept
	claims  bool // the answer depends on claims, see Consistency
}

// route is a path, in which * stands for one segment, and its methods.
type route struct {
	path    string
	allow   string
	methods map[string]endpoint
}

// router finds the endpoints of requests.
type router []route

// newRouter returns a router of the whole API.
func newRouter(l *ledger.Ledger, randomize bool) router {
	classes, providers, inventories, aggregates := classes{l}, providers{l}, inventories{l}, aggregates{l}
	traits, providerTraits, allocations, usages := traits{l}, providerTraits{l}, allocations{l}, usages{l}
	candidates, wholeProviders, reshaper := candidates{l, randomize}, wholeProviders{l}, reshaper{l}
	return router{
		{"/", "GET", map[string]endpoint{
			"GET": {handle: versions},
		}},
		{"/resource_classes", "GET, POST", map[string]endpoint{
			"GET":  {policy: "resource_classes:list", since: 2, sends: true, handle: classes.list},
			"POST": {policy: "resource_classes:create", since: 2, readsIn: true, handle: classes.create},
		}},
		{"/resource_classes/*", "GET, PUT, DELETE", map[string]endpoint{
			"GET":    {policy: "resource_classes:show", since: 2, sends: true, handle: classes.show},
			"PUT":    {policy: "resource_classes:update", since: 2, handle: classes.put},
			"DELETE": {policy: "resource_classes:delete", since: 2, handle: classes.delete},
		}},
		{"/resource_providers", "GET, POST", map[string]endpoint{
			"GET":  {policy: "resource_providers:list", sends: true, handle: providers.list},
			"POST": {policy: "resource_providers:create", readsIn: true, handle: providers.create},
		}},
		{"/resource_providers/*", "GET, DELETE, PUT", map[string]endpoint{
			"GET":    {policy: "resource_providers:show", sends: true, handle: providers.show},
			"PUT":    {policy: "resource_providers:update", readsIn: true, handle: providers.update},
			"DELETE": {policy: "resource_providers:delete", handle: providers.delete},
		}},
		{"/resource_providers/*/inventories", "GET, POST, PUT, DELETE", map[string]endpoint{
			"GET":  {policy: "resource_providers:inventories:list", sends: true, handle: inventories.list},
			"POST": {policy: "resource_providers:inventories:create", readsIn: true, handle: inventories.create},
			"PUT":  {policy: "resource_providers:inventories:update", readsIn: true, handle: inventories.set},
			"DELETE": {policy: "resource_providers:inventories:delete", since: 5, hidden: 405,
				handle: inventories.deleteAll},
		}},
		{"/resource_providers/*/inventories/*", "GET, PUT, DELETE", map[string]endpoint{
			"GET":    {policy: "resource_providers:inventories:show", sends: true, handle: inventories.show},
			"PUT":    {policy: "resource_providers:inventories:update", readsIn: true, handle: inventories.update},
			"DELETE": {policy: "resource_providers:inventories:delete", handle: inventories.delete},
		}},
		{"/resource_providers/*/usages", "GET", map[string]endpoint{
			"GET": {policy: "resource_providers:usages", sends: true, claims: true, handle: usages.ofProvider},
		}},
		{"/resource_providers/*/aggregates", "GET, PUT", map[string]endpoint{
			"GET": {policy: "resource_providers:aggregates:list", since: 1, sends: true, handle: aggregates.show},
			"PUT": {policy: "resource_providers:aggregates:update", since: 1, readsIn: true, handle: aggregates.set},
		}},
		{"/resource_providers/*/allocations", "GET", map[string]endpoint{
			"GET": {policy: "resource_providers:allocations:list", sends: true, claims: true,
				handle: allocations.ofProvider},
		}},
		{"/resource_providers/*/traits", "GET, PUT, DELETE", map[string]endpoint{
			"GET":    {policy: "resource_providers:traits:list", since: 6, sends: true, handle: providerTraits.show},
			"PUT":    {policy: "resource_providers:traits:update", since: 6, readsIn: true, handle: providerTraits.set},
			"DELETE": {policy: "resource_providers:traits:delete", since: 6, handle: providerTraits.delete},
		}},
		{"/allocations", "POST", map[string]endpoint{
			"POST": {policy: "allocations:manage", since: 13, readsIn: true, handle: allocations.manage},
		}},
		{"/allocations/*", "GET, PUT, DELETE", map[string]endpoint{
			"GET":    {policy: "allocations:list", sends: true, claims: true, handle: allocations.show},
			"PUT":    {policy: "allocations:update", readsIn: true, handle: allocations.set},
			"DELETE": {policy: "allocations:delete", handle: allocations.delete},
		}},
		{"/allocation_candidates", "GET", map[string]endpoint{
			"GET": {policy: "allocation_candidates:list", since: 10, sends: true, handle: candidates.list},
		}},
		{"/traits", "GET", map[string]endpoint{
			"GET": {policy: "traits:list", since: 6, sends: true, handle: traits.list},
		}},
		{"/traits/*", "GET, PUT, DELETE", map[string]endpoint{
			"GET":    {policy: "traits:show", since: 6, handle: traits.show},
			"PUT":    {policy: "traits:update", since: 6, handle: traits.put},
			"DELETE": {policy: "traits:delete", since: 6, handle: traits.delete},
		}},
		{"/usages", "GET", map[string]endpoint{
			"GET": {policy: "usages", since: 9, sends: true, claims: true, handle: usages.show},
		}},
		{"/croft/providers", "GET", map[string]endpoint{
			"GET": {policy: "resource_providers:list", sends: true, claims: true, handle: wholeProviders.list},
		}},
		{"/croft/providers/*", "PUT", map[string]endpoint{
			"PUT": {policy: "resource_providers:update", readsIn: true, handle: wholeProviders.put},
		}},
		{"/reshaper", "POST", map[string]endpoint{
			"POST": {policy: "reshaper:reshape", since: 30, readsIn: true, handle: reshaper.reshape},
		}},
	}
}

// find returns the endpoint of a request and stores the variable segments of its path. The string is the pattern of the
// path, for metrics; "": no path matches.
func (r router) find(q *request) (string, endpoint, error) {
	path := q.r.URL.Path
	if path == "" {
		path = "/"
	}
	for _, r := range r {
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

// check performs the checks that need no handler: the version, and the media types of body and answer.
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
