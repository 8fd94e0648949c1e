// Package revlock lets at most one operator at a time change a node, and only from a revision that contains the
// revision which was last applied there. A node needs sshd, a POSIX shell and flock(1). croft runs nothing on a node
// between changes.
//
// A holder is a shell on the node. It holds the node's lock while its connection stands, and runs orders one by one.
// When the connection is lost, so is the lock, and the holder runs no further order. The node's record of the last
// change has an epoch. Every change and every break of a lock increases the epoch, and the holder compares it before
// each order.
package revlock
