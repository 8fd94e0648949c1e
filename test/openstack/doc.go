// Package openstack shows that OpenStack's own command line client works with croft's Placement as it does with
// OpenStack's. It holds tests only.
package openstack
