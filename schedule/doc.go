// Package schedule turns a request into a claim and an order: query, candidates, rank, claim, order. It writes the
// intent first, so that a crash at any point leaves a record from which any process can finish or undo.
//
// The program bin/schedule is cmd/croft under that name: cli/instances has its commands. schedule.yaml lists its
// settings, docs/users/using.md says how to use it, and docs/contributors/requests.md describes its design.
package schedule
