package serve

import (
	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/node"
)

// Compute returns the command croft serve compute.
func Compute() *cobra.Command {
	flags := append([]args.HostFlag{args.StateDirFlag, args.LogLevelFlag, args.EtcdFlag, args.PlacementFlag,
		args.CloudFlag, args.TokenFlag}, args.AgentFlags...)
	cmd := &cobra.Command{
		Use:   "compute",
		Short: "Run the agent of this host",
		Long: `Run the agent of this host: it offers the host's inventory to Placement and carries out
the orders that it finds in etcd. It serves metadata to its guests unless another
process does. Guests keep running when it ends. On a host that joined a cloud with croft
up --join it runs that cloud's agent, as croft up does.`,
	}
	args.AddHostFlags(cmd, flags...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, log, err := args.LoadHostSettings(cmd, flags...)
		if err != nil {
			return err
		}
		if cmd.Flags().Changed("cloud") && cmd.Flags().Changed("token") {
			return croft.Errorf(croft.Invalid,
				"give --cloud or --token, not both: a cloud gets its tokens from Keystone")
		}
		reach, err := args.Reach(cmd, &s)
		if err != nil {
			return err
		}
		return node.Supervised(cmd.Context(), log, func(ready func()) error {
			return node.RunAgent(cmd.Context(), s, reach, log, func() {
				tellReady(cmd.ErrOrStderr(), "the agent of this host is up; croft host list shows what the host offers")
				ready()
			})
		})
	}
	return cmd
}

// Metadata returns the command croft serve mdserver.
func Metadata() *cobra.Command {
	flags := []args.HostFlag{args.StateDirFlag, args.LogLevelFlag, args.EtcdFlag, args.AgentFlags[2],
		args.AgentFlags[3],
		{Flag: "listen", Setting: "metadata.listen", Usage: "address of /livez, /readyz and /metrics"}}
	cmd := &cobra.Command{
		Use:   "mdserver",
		Short: "Run the metadata server of this host",
		Long: `Run the metadata server of this host alone, for the guests of the agent that has the
same state directory and metadata.server: false in its settings. /livez, /readyz and
/metrics are at --listen, which guests cannot reach.`,
	}
	args.AddHostFlags(cmd, flags...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, log, err := args.LoadHostSettings(cmd, flags...)
		if err != nil {
			return err
		}
		reach, err := args.Reach(cmd, &s)
		if err != nil {
			return err
		}
		return node.RunMetadata(cmd.Context(), s, reach, log)
	}
	return cmd
}
