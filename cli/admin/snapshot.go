package admin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cloud"
	"croft/internal/durable"
)

// snapshotTime bounds taking a snapshot.
const snapshotTime = 10 * time.Minute

func snapshotCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "snapshot FILE",
		Short: "Write all that etcd holds to a file, while everything runs",
		Long: `snapshot writes all that the cloud's etcd holds, croft's Placement included, to a new
file that its owner alone may read: there are secrets in it. Guests, their disks and the
cloud's authority (ca in the state directory of the first host) are not in it.`,
		Args: args.Count(1, 1),
		RunE: func(cmd *cobra.Command, given []string) error {
			return args.With(cmd, func(ctx context.Context, c *args.Client) error {
				ctx, cancel := context.WithTimeout(ctx, snapshotTime)
				defer cancel()
				size, err := takeSnapshot(ctx, c.Backups, given[0])
				if err == nil {
					fmt.Fprintf(cmd.ErrOrStderr(), "%s has all that etcd holds, %d KiB\n", given[0], size>>10)
				}
				return err
			})
		},
	}
	args.AddCloudFlags(cmd.Flags())
	return cmd
}

// takeSnapshot leaves a complete file or none.
func takeSnapshot(ctx context.Context, backups cloud.Backups, file string) (size int64, err error) {
	if _, err := os.Lstat(file); err == nil {
		return 0, croft.Errorf(croft.Conflict, "%s is there already: name a new file", file)
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".snapshot-*") // readable only by its owner
	if err != nil {
		return 0, croft.Errorf(croft.Invalid, "write the snapshot: %w", err)
	}
	size, err = backups.Snapshot(ctx, f)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return 0, errors.Join(err, os.Remove(f.Name()))
	}
	return size, durable.FlushDir(filepath.Dir(file))
}
