// Package placement is the Placement API, microversions 1.0 to 1.39, as OpenStack's
// own server answers it. Every server holds the whole state in memory, fed by a
// watch on its Store; a write is one transaction that compares what it read, so a
// claim never takes more than there is, however many servers run side by side.
//
// state.go and tx.go are the model, candidates.go the search: both are free of
// HTTP. routes.go lists every endpoint; a file each holds its handlers, its
// schemas and what differs between microversions.
package placement
