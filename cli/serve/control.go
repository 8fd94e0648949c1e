package serve

import (
	"github.com/spf13/cobra"

	"croft/cli/args"
	"croft/node"
)

// Control returns the command croft serve control.
func Control() *cobra.Command {
	flags := []args.HostFlag{
		args.StateDirFlag, args.LogLevelFlag, args.EtcdFlag, args.PlacementFlag, args.CloudFlag, args.TokenFlag,
		args.InsecureFlag,
		{Flag: "listen", Setting: "cloud_api.listen", Usage: "address to serve on"},
	}
	cmd := &cobra.Command{
		Use:   "control",
		Short: "Serve the API of the cloud alone",
		Long: `Serve the API of the cloud alone: what tenants use with CROFT_URL and CROFT_TOKEN. croft
up serves it too; any number of servers may run at once. It connects to the cloud's etcd
and Placement, so that tenants need no access to them. Beyond this machine it requires
TLS: cloud_api.cert and cloud_api.key, or the certificate of a host of the cloud.

Besides the API it serves /readyz (200 or 503), /livez and /metrics.`,
	}
	args.AddHostFlags(cmd, flags...)
	cmd.Flags().Lookup(args.InsecureFlag.Flag).NoOptDefVal = "true"
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, log, err := args.LoadHostSettings(cmd, flags...)
		if err != nil {
			return err
		}
		reach, err := args.Reach(cmd, &s)
		if err != nil {
			return err
		}
		return node.Supervised(cmd.Context(), log, func(ready func()) error {
			return node.RunControl(cmd.Context(), s, reach, log, ready)
		})
	}
	return cmd
}
