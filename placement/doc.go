// Package placement serves the Placement API over HTTP, microversions 1.0 to 1.39, as OpenStack's own server answers
// it.
//
// What it serves is in ledger: the state in memory, transactions, the search for candidates. This package knows
// requests and answers: routes.go lists every endpoint, and each kind of object has a type and a file with its handlers,
// its schemas and what differs between microversions. request.go reads requests, refusal.go writes refusals.
package placement
