package admin

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/node"
)

// EtcdCommand is `croft etcd`: it backs etcd up and restores it.
func EtcdCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "etcd",
		Short: "Take a snapshot of all that the cloud knows, or go back to one",
		Example: `  croft etcd snapshot /backup/croft.db
  croft etcd restore /backup/croft.db --state-dir /var/lib/croft`,
		Args: func(cmd *cobra.Command, args []string) error {
			return croft.Errorf(croft.Invalid, "usage: %s snapshot or restore", cmd.CommandPath())
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(snapshotCommand(), restoreCommand())
	return cmd
}

func restoreCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Make this host's etcd anew from a snapshot",
		Long: `restore makes the etcd of this host anew from a snapshot, as the only one of the cloud.
Before it, end croft on all hosts that serve etcd, and move the directory etcd in the
state directory out of the way. After it, start croft up here first; hosts that served
etcd too notice that they no longer do, go on as hosts, and may join with --etcd-member
again. Guests run on meanwhile. What happened since the snapshot is not known then:
croft audit says what does not agree.`,
		Args: args.Count(1, 1),
	}
	args.AddHostFlags(cmd, args.StateDirFlag, args.LogLevelFlag)
	cmd.RunE = func(cmd *cobra.Command, given []string) (err error) {
		s, _, err := args.LoadHostSettings(cmd, args.StateDirFlag, args.LogLevelFlag)
		if err != nil {
			return err
		}
		if _, err := os.Stat(given[0]); err != nil {
			return croft.Errorf(croft.Invalid, "read the snapshot: %w", err)
		}
		err = node.RestoreEtcd(s.StateDir, given[0])
		if err == nil {
			fmt.Fprintf(cmd.ErrOrStderr(),
				"%s is as the snapshot has it; start croft up here, then elsewhere, and see what croft audit says\n",
				node.EtcdDir(s.StateDir))
		}
		return err
	}
	return cmd
}
