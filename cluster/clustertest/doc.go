// Package clustertest provides the shared parts of tests of clusters: a store in memory, and contract tests of stores
// and drivers.
package clustertest
