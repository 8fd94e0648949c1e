// Package acquaint holds the scripts by which the members of a cluster get to know each other: names in /etc/hosts, the
// keys of SSH servers, and a key by which root logs in from one member to another. The files that they write are the
// same wherever the members run; only the source of the list differs.
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

// Source is the Python by which a member asks for the list of members and for the key that they share.
type Source string

// The sources.
var (
	// Metadata asks croft's metadata server.
	//
	//go:embed metadata.py
	Metadata Source
	// Master has the slaves announce themselves to the master, where no metadata server of croft answers. It reads
	// /etc/croft/member: lines with secret, name, role and, on slaves, the address of the master.
	//
	//go:embed master.py
	Master Source
)

// Script returns the shell script that begins to follow the members. It is to run early in each boot.
func Script(from Source) string {
	whole := strings.Replace(program, "#include SOURCE\n", string(from), 1)
	return strings.Replace(script, "#include peers.py\n", whole, 1)
}

// Wait returns the shell script that waits until a member knows the others.
func Wait() string { return acquainted }
