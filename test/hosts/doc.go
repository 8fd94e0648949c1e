// Package hosts runs a cloud of three hosts on one machine: each host is a network, mount and process namespace with
// its own libvirt, where the real agent runs real guests; etcd is a cluster of three processes. The tests cut links
// and kill members, and check what users see and what happens to guests.
package hosts
