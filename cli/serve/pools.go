package serve

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"croft/cli/args"
	"croft/control/cloud/direct"
	"croft/node/manager"
	"croft/node/settings"
	"croft/pool/server"
)

// Pools returns the command croft serve pool. rpc is a second protocol for tickets; nil: none.
func Pools(rpc server.RPC) *cobra.Command {
	flags := []args.HostFlag{
		args.StateDirFlag, args.LogLevelFlag, args.EtcdFlag,
		{Flag: "pools", Setting: "pool.file",
			Usage: "the pools (default: the first pools.yaml in ./, ~/.config/croft, /etc/croft)"},
		{Flag: "listen", Setting: "pool.listen", Usage: "address to serve on"},
		{Flag: "address", Setting: "pool.address",
			Usage: "URL at which other managers on the same etcd reach this one"},
		{Flag: "tokens", Setting: "pool.tokens",
			Usage: "file with the tokens of clients; croft token create --for pool adds one"},
		{Flag: "cert", Setting: "pool.cert", Usage: "file of the certificate to serve https:// with"},
		{Flag: "key", Setting: "pool.key", Usage: "file of its key"},
		{Flag: "insecure", Setting: "pool.insecure", Usage: "serve without tokens beyond this machine"},
		{Flag: "logs", Setting: "pool.logs", Usage: "directory for what the pools' commands print"},
	}
	cmd := &cobra.Command{
		Use:   "pool",
		Short: "Run the manager of the pools",
		Long: `pool runs the manager of the pools in pools.yaml: it starts, checks, cleans and deletes
their resources and hands them out to tickets. A change of the file counts within
seconds; if the file has an error, the last valid one stays in force.

Its state is in the etcd that etcd.endpoints names, or, on a machine that runs croft up,
in that cloud's; else in an etcd of its own below the state directory. Any number of
managers may run on one etcd: one acts, the others hand requests on to it, and when it
ends another takes its place.

It serves a page for people, a JSON API (docs/users/pools-api.md), the XML-RPC of resalloc's
clients, /metrics, /livez and /readyz. Without --tokens it serves this machine alone.`,
	}
	args.AddHostFlags(cmd, flags...)
	cmd.Flags().Lookup("insecure").NoOptDefVal = "true"
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, log, err := args.LoadHostSettingsOver(settings.Defaults(), cmd, flags...)
		if err != nil {
			return err
		}
		if len(s.Etcd.Endpoints) == 0 {
			s.Etcd.Endpoints = direct.EndpointsFromEnv(os.Getenv)
		}
		return manager.Serve(cmd.Context(), manager.Config{
			Settings: s, Dir: filepath.Join(s.StateDir, "pool"), RPC: rpc, Log: log,
		})
	}
	return cmd
}
