package ip

import (
	"fmt"

	"github.com/spf13/cobra"

	"croft/grid/ipam"
	"croft/grid/ipam/nft"
	"croft/internal/command"
)

func nftCommand(o *options) *cobra.Command {
	var check, logDrop bool
	cmd := &cobra.Command{
		Use:   "nft [NODE]",
		Short: "Print the rules for nftables",
		Long: `nft prints a transaction for nft -f -, which makes the table inet fission_CLUSTER what the
access rules say, and touches nothing else. With a node of the cluster it filters the
addresses of the jobs on that node; without one all leased addresses, as for a machine
that stands before them. ssh to the machine itself passes always.

--check has nft look at the rules here first, which takes root.`,
		Example: `  croft ip nft web1
  croft ip nft --check | nft -f -`,
		Args: command.Count(0, 1),
		RunE: func(cmd *cobra.Command, given []string) error {
			return o.read(cmd, func(n *ipam.Net) error {
				var node *ipam.Node
				var err error
				if len(given) > 0 {
					if node, err = n.FindNode(given[0]); err != nil {
						return err
					}
				}
				t, err := n.Firewall(cmd.Context(), node)
				if err != nil {
					return err
				}
				t.LogDrop = logDrop
				script, err := t.Script()
				if err != nil {
					return err
				}
				switch {
				case len(t.Rules) == 0:
					n.Notes = append(n.Notes, "there is no access rule, so nothing is filtered")
				case len(t.Managed.Ranges()) == 0:
					n.Notes = append(n.Notes, "nothing is leased there, so nothing is filtered")
				}
				if check {
					if err := nft.Check(cmd.Context(), script); err != nil {
						return err
					}
				}
				_, err = fmt.Fprint(cmd.OutOrStdout(), script)
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "print nothing that nft refuses")
	cmd.Flags().BoolVar(&logDrop, "log-drops", false, "log what is dropped, at most 10 packets a second")
	return cmd
}
