// Package hosts runs a cloud of three hosts on one machine: each host is a network,
// mount and process namespace with a libvirt of its own, where the real agent runs
// real guests, and etcd is a cluster of three processes. The tests cut links and kill
// members, and look at what users are told and what becomes of guests.
package hosts
