// Package acquaint holds the scripts with which the members of a cluster learn about each other: they write names to
// /etc/hosts, the keys of SSH servers, and a key with which root can log in from one member to another. The files that
// they write are the same wherever the members run; only the source of the list differs.
package acquaint

import (
	_ "embed"
	"strings"
)

var (
	//go:embed peers.sh
	script string
	//go:embed peers.py
	program string
	//go:embed acquainted.sh
	acquainted string
)

// Source is the Python program with which a member reads the list of members and the key that they share.
type Source string

// The sources.
var (
	// Metadata reads from croft's metadata server.
	//go:embed metadata.py
	Metadata Source
	// Master is for guests without a metadata server of croft: the slaves announce themselves to the master. It reads
	// /etc/croft/member: lines with secret, name, role and, on slaves, the address of the master.
	//go:embed master.py
	Master Source
)

// Script returns the shell script that starts to follow the members. It must run early in each boot.
func Script(from Source) string {
	whole := strings.Replace(program, "#include SOURCE\n", string(from), 1)
	return strings.Replace(script, "#include peers.py\n", whole, 1)
}

// Wait returns the shell script that waits until a member has the list of members.
func Wait() string { return acquainted }
