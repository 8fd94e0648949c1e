// Package local builds clusters on the hosts of this cloud: the driver of the site of type local. A member is an
// instance whose UUID is the member's ID, and which belongs to the cluster. Claims of all members are held before any
// of them is ordered, so a cluster gets all that it asks for or nothing. What the driver knows, it reads from the
// records of the instances, so that any process can go on with what another has begun.
package local
