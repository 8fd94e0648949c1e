// Package watch is the dynamic mode of the grid: nodes send beats to a controller, and what ran on a node that is lost
// moves elsewhere, by a commit that anybody could have made by hand.
//
// Decide is pure: it says who is suspect, who is dead, and what follows, each with its reason. It does nothing when so
// much is lost that the controller itself may be what is cut off. No clocks of two machines are ever compared: a beat
// counts from when it arrived, on the controller's clock alone.
//
// Several controllers may watch. One leads: it holds a record in the upstream repository, and each of its commits is
// pushed in one transaction with its next record, so a controller that was frozen and replaced changes nothing any
// more. The leader alone grants leases, which let nodes run exclusive jobs; a job leaves a node only when its lease
// must have run out there, or when a fence says that the node is off.
package watch
