// Package crowd tests how many schedulers affect each other when they concurrently want the same resources. Each has
// its own connections to one etcd and one Placement; hosts have simulated guests, all in one process.
package crowd
