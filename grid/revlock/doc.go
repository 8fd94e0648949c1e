// Package revlock lets at most one operator at a time change a node, and nobody change it from a revision that lacks
// what is applied there. A node needs sshd, a POSIX shell and flock(1), and keeps nothing running between changes.
//
// A holder is a shell on the node that has the node's lock for as long as its connection stands, and that runs orders
// one by one. A connection that is lost is a lock that is lost: its holder runs no further order. What a node stores
// of the last change has an epoch, which every change and every break of a lock raises, and which the holder compares
// before each order.
package revlock
