// Package placementcheck finds out whether Placement servers behave like a single one
// that does one request after the other: many clients claim, move, give back and read
// at random, every request is noted with the times between which it happened, and a
// checker looks for an order of all of them that such a server could have had.
//
// A request without an answer may have been done or not, at once or later, and the
// checker allows for all of that; an answer is taken at its word. So what is found is
// a claim beyond the capacity, an acknowledged change that is lost, a read of what was
// not true at any moment of it, and a refusal without a reason.
package placementcheck
