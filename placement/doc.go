// Package placement serves the Placement API over HTTP, microversions 1.0 to 1.39, with the answers of OpenStack's own
// server, which comments here call the original.
//
// The state in memory, the transactions and the search for candidates are in package ledger. This package handles
// requests and answers: routes.go lists every endpoint; each kind of object has a type with its handlers, in the same
// file as its schemas and the differences between microversions. request.go reads requests, refusal.go writes refusals.
package placement
