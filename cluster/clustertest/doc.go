// Package clustertest holds what tests of clusters share: a store in memory, and the contracts of stores and drivers.
package clustertest
