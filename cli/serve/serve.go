// Package serve has the commands that run a process of the cloud: up, down, and below serve compute, mdserver, control,
// placement and the manager of pools. They parse flags, and when ready report that to the process that started them.
package serve

import (
	"github.com/spf13/cobra"

	"croft/cli/verb"
	"croft/pool/server"
)

// Command returns the command croft serve. rpc is a second protocol for tickets; nil: none. The command croft serve
// placement has the subcommands placement.
func Command(rpc server.RPC, placement ...*cobra.Command) *cobra.Command {
	return verb.Group("serve", "Run one part of a cloud alone", `serve runs one part of a cloud in a process of its own, in the foreground. croft up runs
all that a machine needs in one process.`, `  croft serve compute --etcd http://controller:2379 --placement http://controller:8778
  croft serve control --listen :8780
  croft serve pool --pools pools.yaml`,
		Compute(), Metadata(), Control(), Placement(placement...), Pools(rpc))
}
