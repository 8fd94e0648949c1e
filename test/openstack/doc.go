// Package openstack shows that OpenStack's own command line client does the same with
// croft's Placement as with OpenStack's. It holds tests only.
package openstack
