package serve

import (
	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/node"
)

// Placement returns the command croft serve placement, with these subcommands.
func Placement(below ...*cobra.Command) *cobra.Command {
	flags := []args.HostFlag{
		args.LogLevelFlag, args.EtcdFlag, args.TokenFlag, args.InsecureFlag,
		{Flag: "keystone", Setting: "placement.keystone.cloud",
			Usage: "cloud of clouds.yaml with the login for checking clients' tokens at Keystone; env takes it from " +
				"OS_*"},
		{Flag: "listen", Setting: "placement.listen", Usage: "address to serve on"},
		{Flag: "consistent-reads", Setting: "placement.consistent_reads",
			Usage: "reads that include the latest writes of other servers: none, claims or all"},
		{Flag: "randomize", Setting: "placement.randomize", Usage: "answer allocation candidates in random order"},
		{Flag: "access-log", Setting: "placement.access_log", Usage: "log every request"},
		{Flag: "etcd-listen", Setting: "etcd.listen",
			Usage: "address of the etcd of --data-dir, for others to use; a free port of this machine where not given"},
	}
	cmd := &cobra.Command{
		Use:   "placement",
		Short: "Run croft's own Placement server alone",
		Long: `Run croft's own Placement server alone: the API of OpenStack Placement, its state in the
etcd at --etcd, or in an etcd of its own below --data-dir. Any number of servers may run
on one etcd; claims never exceed the inventory, whichever server receives them. While
etcd does not answer, they answer 503.

Besides the API it serves /readyz (200 or 503), /livez and /metrics.`,
	}
	cmd.AddCommand(below...)
	args.AddHostFlags(cmd, flags...)
	for _, name := range []string{"randomize", "access-log", args.InsecureFlag.Flag} {
		cmd.Flags().Lookup(name).NoOptDefVal = "true"
	}
	dataDir := cmd.Flags().String("data-dir", "", "run an etcd of its own with its data here")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, log, err := args.LoadHostSettings(cmd, flags...)
		if err != nil {
			return err
		}
		if *dataDir != "" && cmd.Flags().Changed("etcd") {
			return croft.Errorf(croft.Invalid, "give --etcd or --data-dir, not both")
		}
		var own *node.OwnEtcd
		if *dataDir != "" {
			own = &node.OwnEtcd{Dir: *dataDir, Listen: "127.0.0.1:0"}
		}
		if cmd.Flags().Changed("etcd-listen") && own != nil {
			own.Listen = s.Etcd.Listen
		} else if cmd.Flags().Changed("etcd-listen") {
			return croft.Errorf(croft.Invalid, "--etcd-listen is where the etcd of --data-dir listens: give both")
		}
		return node.Supervised(cmd.Context(), log, func(ready func()) error {
			return node.RunPlacement(cmd.Context(), s, own, log, ready)
		})
	}
	return cmd
}
