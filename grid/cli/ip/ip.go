// Package ip has the commands for addresses that are stored in files: croft ip, which is also called itabot.
package ip

import (
	"github.com/spf13/cobra"

	"croft/internal/command"
)

// Command returns the command croft ip.
func Command() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "ip",
		Short: "Keep addresses, sets of them and access rules as files",
		Long: `Addresses are files of a directory under version control, below net/. Any directory will
do; in the directory of a cluster (croft grid), jobs and nodes have names in sets too.

The path of a lease is its address: a link from net/lease/v4/10.0.0.5 to the owner, so
that two branches which give one address to two owners conflict when they are merged.

Sets of addresses are expressions:
  #tag @set pool:web job:web/* node:syd/**      names
  10.0.0.0/8 10.0.0.9 10.0.0.9-10.0.0.20        addresses, of IPv6 too
  all4 all6 none                                all of a family, and nothing
  a | b    a - b    a & b    !a    ( )          & binds over -, and - over |

Exit codes: 0 done, 1 an error, 3 another process holds the lock. Other commands end with 7
where something is not permitted; that is an error, 1, here.`,
		Example: `  croft ip add web 10.0.0.0/24 --gateway 10.0.0.1 --tag web
  croft ip get web shop/front/0
  croft ip show 10.0.0.2
  croft ip access add shop --from '10.0.0.0/8' --to 'job:shop/**' --proto tcp --ports 80
  croft ip nft | nft -f -`,
		Args: command.OnlySubcommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVarP(&o.dir, "directory", "C", ".", "the `directory` with net/")
	cmd.AddCommand(addCommand(o), getCommand(o), freeCommand(o), tagCommand(o), showCommand(o), findCommand(o),
		setCommand(o), accessCommand(o), nftCommand(o), importCommand(o), checkCommand(o), hardpointCommand(o))
	command.OneForErrors(cmd)
	return cmd
}
