// Package placementcheck checks that Placement servers together behave like a single one that serves one request
// after the other (linearizability): many clients claim, move, release and read at random, every request is recorded
// with its start and end, and a checker looks for an order of all of them that such a server could have had.
//
// A request without an answer may have been executed or not, at once or later, and the checker allows for all of
// that; an answer counts as true. So it finds claims beyond the capacity, acknowledged changes that are lost, stale
// reads, and refusals without a reason.
package placementcheck
