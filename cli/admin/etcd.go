package admin

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/node"
)

// EtcdCommand returns the command croft etcd, which backs etcd up and restores it.
func EtcdCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "etcd",
		Short: "Save a snapshot of the cloud's etcd, or restore one",
		Example: `  croft etcd snapshot /backup/croft.db
  croft etcd restore /backup/croft.db --state-dir /var/lib/croft`,
	}
	cmd.AddCommand(snapshotCommand(), restoreCommand())
	return cmd
}

func restoreCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Recreate this host's etcd from a snapshot",
		Long: `restore recreates this host's etcd from a snapshot, as the only member of the cloud's
etcd. First stop croft on all hosts that serve etcd, and move the directory etcd in the
state directory away. Afterwards start croft up here first. Other hosts that served etcd
continue as hosts without etcd, and may join with --etcd-member again. Guests keep
running meanwhile. Changes since the snapshot are lost: croft audit reports the
differences.`,
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
				"%s has the state of the snapshot; start croft up here, then elsewhere, and run croft audit\n",
				node.EtcdDir(s.StateDir))
		}
		return err
	}
	return cmd
}

// snapshotTime limits the time to take a snapshot.
const snapshotTime = 10 * time.Minute

func snapshotCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "snapshot FILE",
		Short: "Write the whole content of etcd to a file, while everything runs",
		Long: `snapshot writes the whole content of the cloud's etcd, including croft's Placement, to a
new file that only its owner may read, since it contains secrets. Guests, their disks
and the cloud's authority (ca in the state directory of the first host) are not in it.`,
		RunE: func(cmd *cobra.Command, given []string) error {
			return args.With(cmd, func(ctx context.Context, c *args.Client) error {
				ctx, cancel := context.WithTimeout(ctx, snapshotTime)
				defer cancel()
				var size int64
				err := args.WriteNew(given[0], func(w io.Writer) (err error) {
					size, err = c.Snapshot(ctx, w)
					return err
				})
				if err != nil {
					return err
				}
				return c.Report(struct {
					File  string `json:"file"`
					Bytes int64  `json:"bytes"`
				}{given[0], size}, "%s has the whole content of etcd, %d KiB", given[0], size>>10)
			})
		},
	}
	args.AddCloudFlags(cmd.Flags())
	return cmd
}
