// Package compute is the agent of one host. It offers the host's inventory to Placement and carries out the orders it
// finds in etcd, with one worker per instance: a pass reads the order and the domain, computes the pure Plan, runs the
// steps and writes the observation. A missing order never causes a removal; only a tombstone of the same partition
// does.
package compute
