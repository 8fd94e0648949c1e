// Package move tests moves of instances with their disks, between agents of one process: their etcd, their Placement
// and the connections between them are real, and only the guests are simulated.
package move
