// Package e2e runs croft as its users do: the built program as a separate process, with libvirt and emulated guests. It
// checks the effects of croft, and that nothing remains afterwards, from outside: with virsh, HTTP and etcd's own
// client.
package e2e
