// Package crowd tests what many schedulers do to each other that want the same at
// once: each with its own connections to one etcd and one Placement, hosts with
// simulated guests, all in one process.
package crowd
