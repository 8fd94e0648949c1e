// Package placement serves the Placement API over HTTP, microversions 1.0 to 1.39, as OpenStack's own server answers
// it.
//
// What it serves is in ledger: the state in memory, transactions, the search for candidates. This package knows
// requests and answers: routes.go lists every endpoint, and a type for each kind of object has its handlers, beside
// their schemas and what differs between microversions. request.go reads requests, refusal.go writes refusals.
package placement
