// Package resalloc offers resalloc's interfaces on croft's pools: its programs, with their verbs, flags, output and
// exit codes, and its protocol, XML-RPC. The package can be deleted as a whole: only the program's table of names, and
// the server of pools for the protocol, refer to it.
package resalloc

import (
	"github.com/spf13/cobra"
)

// Names are the program names under which the binary can be called.
var Names = []string{"resalloc", "resalloc-maint", "resalloc-server", "resalloc-check-vm-ip", "resalloc-wait-for-ssh"}

// Command returns the program with this name; nil: no program has it.
func Command(name string, b Backend) *cobra.Command {
	switch name {
	case "resalloc":
		return clientCommand()
	case "resalloc-maint":
		return maintCommand(b)
	case "resalloc-server":
		return serverCommand(b)
	case "resalloc-check-vm-ip":
		return checkCommand()
	case "resalloc-wait-for-ssh":
		return waitCommand()
	}
	return nil
}

// VersionTemplate is the template for --version: the client says that it is a client.
func VersionTemplate(name string) string {
	if name == "resalloc" {
		name += " (client)"
	}
	return name + " {{.Version}}\n"
}
