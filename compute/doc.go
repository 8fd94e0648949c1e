// Package compute is the agent of one host. It offers the host's inventory to
// Placement and makes the orders it finds in etcd true, one worker per instance:
// a pass reads the order and the domain, computes the pure Plan, does the steps
// and writes the observation. Absence is not an order: only a tombstone of the
// same partition destroys anything.
package compute
