// Package schedule turns a request into a claim and an order: query, candidates, rank, claim, order. It writes the
// intent first, so that a crash at any point leaves a record from which any process can finish or undo.
package schedule
