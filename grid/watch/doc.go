// Package watch is the dynamic mode of the grid: nodes send beats to a controller, and the controller moves the slots
// of a lost node elsewhere, by a commit that an operator could have made by hand.
//
// Decide is a pure function: it says which nodes are suspect, which are dead and what to do, each with a reason. It
// takes no action when so many nodes are lost that the controller itself may be cut off. The clocks of two machines are
// never compared: a beat counts from its arrival, on the controller's clock.
//
// Several controllers may watch, and one of them leads. The leader has a record in the upstream repository. It pushes
// each commit in one transaction with its next record, so a controller that was frozen and replaced cannot change
// anything. Only the leader grants leases, which let nodes run exclusive jobs. A slot of an exclusive job leaves a node
// only after the node's lease must have run out, or after a fence said that the node is off.
package watch
