// Package mdserver serves metadata to instances: over HTTP, as the EC2 and the OpenStack metadata trees, and as the
// files of a NoCloud or config-2 disk. It accepts their reports about themselves.
//
// A guest is identified by the bridge and the source address of its TCP connection; the address must be at one of the
// guest's own network cards, and that card at its own bridge port. Headers are never trusted. Missing paths are
// answered with 404 immediately, since guests wait for that while they boot; lookups that time out are answered with
// 503. If a guest opens many or slow connections, only its own oldest connections are closed.
//
// The program bin/mdserver is cmd/croft under that name: cli/serve has its command, node.RunMetadata its process.
// compute.yaml.example lists its settings below metadata:, and docs/users/metadata.md says what guests get.
package mdserver
