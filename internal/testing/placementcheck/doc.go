// Package placementcheck checks that several Placement servers together behave like a single one that serves one
// request after the other (linearizability). Many clients claim, move, release and read at random. Every request is
// recorded with its start and end, and a checker searches for an order in which such a single server could have served
// them.
//
// A request without an answer may have been executed or not, immediately or later, and the checker allows all of these;
// an answer must be true. So it detects claims beyond the capacity, lost changes that were acknowledged, stale reads,
// and refusals without a reason.
package placementcheck
