// Package compute is the agent of one host. It offers the host's inventory to Placement and carries out the orders it
// finds in etcd, with one worker per instance: a pass reads the order and the domain, computes the pure Plan, runs the
// steps and writes the observation. A missing order never causes a removal; only a tombstone of the same partition
// does.
//
// The program bin/compute is cmd/croft under that name: cli/serve has its command, node.RunAgent its process.
// compute.yaml.example lists its settings, docs/users/adding-a-host.md says how to run it, and
// docs/contributors/agent.md describes its design.
package compute
