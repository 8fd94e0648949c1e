// Package crush has the commands that place replicas with a CRUSH map from a file: croft crush.
package crush

import (
	"github.com/spf13/cobra"
)

// Command returns the command croft crush, with more subcommands.
func Command(more ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "crush",
		Short: "Compute where CRUSH places replicas",
		Long: `crush reads a CRUSH map in crushtool's text form (crushtool -d, ceph osd getcrushmap)
and computes places from it. No cloud is needed, but to export the map of its hosts.

A policy says where replicas go, in four instructions:
  use B         begin at bucket B
  select N T    below each bucket here, N distinct buckets of type T
  take N        below each bucket here, N distinct devices
  emit          hand out what was taken, and begin at the root again
N = 0 selects as many as there are replicas, and N = -K selects K fewer.`,
		Example: `  croft crush show map.txt
  croft crush test map.txt --policy 'select 0 host; take 1' --replicas 3 --to 9
  croft crush test map.txt --rule replicated_rule --weight 7=0 --trace 42
  croft crush compare map.txt new.txt --rule replicated_rule`,
	}
	cmd.AddCommand(showCommand(), testCommand(), compareCommand())
	cmd.AddCommand(more...)
	return cmd
}
