// Package local is the driver of the site of type local: it builds clusters on the hosts of this cloud. A member is an
// instance whose UUID is the member's ID, and which belongs to the cluster. The driver holds the claims of all members
// before it orders any of them, so a cluster gets everything that it asks for or nothing. The driver reads its state
// from the records of the instances, so any process can continue what another one has started.
package local
