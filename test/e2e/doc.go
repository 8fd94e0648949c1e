// Package e2e runs croft as its users do: the built program as a separate process, with libvirt and emulated
// guests. It checks from outside, with virsh, HTTP and etcd's own client, what croft did and what it left behind.
package e2e
