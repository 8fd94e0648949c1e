// Package snapshots has the commands for snapshots of instances: croft snapshot.
package snapshots

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/verb"
	"croft/control/api"
	"croft/internal/delay"
	"croft/internal/out"
)

// Command returns the command croft snapshot.
func Command() *cobra.Command {
	return verb.CloudGroup("snapshot", "Take snapshots of instances, and roll back to them",
		`snapshot keeps the state of all disks of an instance at one moment: its own disk and
those of its volumes. An instance can be rolled back to its newest snapshot; everything
written since is then lost.`, `  croft snapshot create web before-upgrade
  croft snapshot list web
  croft snapshot rollback web before-upgrade --stop
  croft snapshot remove web before-upgrade`,
		createCommand(), listCommand(), showCommand(), rollbackCommand(), removeCommand())
}

var snapshots = verb.Noun[api.Snapshot]{
	Name: "snapshot",
	All: func(ctx context.Context, c *args.Client) ([]api.Snapshot, error) {
		list, err := c.ListSnapshots(ctx, api.InProject{Project: c.Project})
		if err == nil {
			c.NoteUnknownProject(c.Cmd, len(list.Snapshots))
		}
		if len(c.Args) == 0 {
			return list.Snapshots, err
		}
		return slices.DeleteFunc(list.Snapshots, func(s api.Snapshot) bool {
			return s.InstanceName != c.Args[0] && string(s.Instance) != c.Args[0]
		}), err
	},
	Find: func(ctx context.Context, c *args.Client, name string) (api.Snapshot, error) {
		return c.GetSnapshot(ctx, named(c, name))
	},
	Word: func(s api.Snapshot) (string, string) { return s.Name, "of " + instance(s) + ", " + s.State },
	Head: []string{"NAME", "INSTANCE", "STATE", "METHOD", "SIZE", "HOST", "TAKEN"},
	Row: func(s api.Snapshot) []out.Cell {
		return verb.Texts(s.Name, instance(s), s.State, s.Method, size(s), s.Host, clock(s.Taken))
	},
	Rows: func(t *out.Table, s api.Snapshot) {
		for _, row := range [][2]string{{"name", s.Name}, {"id", string(s.ID)}, {"project", string(s.Project)},
			{"instance", instance(s)}, {"volumes", strings.Join(s.Volumes, ", ")}, {"state", s.State},
			{"error", s.Error}, {"method", s.Method}, {"note", s.Note}, {"size", size(s)}, {"host", s.Host},
			{"taken", clock(s.Taken)}, {"rolled back", clock(s.RolledBack)},
			{"created", s.Created.Format(time.DateTime)}} {
			if row[1] != "" {
				t.Texts(row[0], row[1])
			}
		}
	},
}

// named names a snapshot of the instance that the first argument names.
func named(c *args.Client, name string) api.SnapshotNamed {
	return api.SnapshotNamed{InstanceNamed: c.Named(c.Args[0]), Snapshot: name}
}

func size(s api.Snapshot) string { return fmt.Sprintf("%dG", s.SizeGB) }

func clock(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.Format(time.DateTime)
}

// instance returns the instance of a snapshot, for people.
func instance(s api.Snapshot) string {
	if s.InstanceName == "" {
		return string(s.Instance)
	}
	return s.InstanceName
}

// poll is how often a command looks whether a host has done what was ordered.
const poll = 100 * time.Millisecond

// await returns the snapshot once its host has done what was ordered, or could not do it.
func await(ctx context.Context, c *args.Client, s api.Snapshot) (api.Snapshot, error) {
	for s.State == string(croft.VolumeCreating) || s.State == string(croft.SnapshotRollingBack) {
		if s.Error != "" {
			break // its host tries again
		}
		err := delay.For(ctx, poll)
		if err == nil {
			s, err = verb.Asked(ctx, c.GetSnapshot, named(c, s.Name))
		}
		if err != nil {
			return s, err
		}
	}
	if s.Error != "" {
		return s, croft.Errorf(croft.Unavailable, "snapshot %s: %s", s.Name, s.Error)
	}
	return s, nil
}

func createCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "create INSTANCE [NAME]",
		Short: "Take a snapshot of all disks of an instance",
		Long: `create takes a snapshot of all disks of an instance at one moment. If the instance runs
and its guest agent answers, the agent freezes the file systems meanwhile. Otherwise the
snapshot has the state of the disks after a power failure. The message says which.`,
		ValidArgsFunction: args.CompleteInstances(1),
		RunE: verb.Wait(func(ctx context.Context, c *args.Client) error {
			in := api.NewSnapshot{InstanceNamed: c.Named(c.Args[0])}
			if len(c.Args) > 1 {
				in.Name = c.Args[1]
			}
			s, err := verb.Asked(ctx, c.CreateSnapshot, in)
			if err == nil {
				s, err = await(ctx, c, s)
			}
			if err != nil {
				return c.Nearest(ctx, c.Args[0], err)
			}
			return c.Report(s, "snapshot %s of %s is taken: %s", s.Name, instance(s), taken(s))
		}),
	}
}

// taken describes how a snapshot was taken.
func taken(s api.Snapshot) string {
	switch croft.Method(s.Method) {
	case croft.MethodQuiesced:
		return "the guest was quiesced"
	case croft.MethodOff:
		return "the guest was off"
	}
	return "the guest was not quiesced: " + s.Note
}

func listCommand() *cobra.Command {
	cmd := snapshots.List("List the snapshots of an instance, or of all")
	cmd.Use, cmd.ValidArgsFunction = "list [INSTANCE]", args.CompleteInstances(1)
	return cmd
}

func showCommand() *cobra.Command {
	return &cobra.Command{Use: "show INSTANCE NAME", Short: "Show a snapshot", ValidArgsFunction: complete(2),
		RunE: verb.Wait(func(ctx context.Context, c *args.Client) error {
			return snapshots.PrintOne(ctx, c, c.Args[1])
		})}
}

// complete completes an instance and then the names of its snapshots, up to most arguments; -1: any number.
func complete(most int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, given []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(given) == 0 {
			return args.CompleteInstances(1)(cmd, given, prefix)
		}
		return verb.Complete(most, func(ctx context.Context, c *args.Client, offer args.Offer) error {
			c.Args = given[:1]
			return snapshots.Offer(ctx, c, offer)
		})(cmd, given, prefix)
	}
}

func rollbackCommand() *cobra.Command {
	var stop bool
	cmd := &cobra.Command{
		Use:   "rollback INSTANCE NAME",
		Short: "Roll an instance back to its newest snapshot",
		Long: `rollback replaces the disks of an instance by those of its newest snapshot. Everything
that was written since is discarded for good, also on its volumes that the snapshot
has. The instance must be stopped; with --stop it is stopped first, and runs again
afterwards. The snapshot stays.`,
		ValidArgsFunction: complete(2),
		RunE: verb.Wait(func(ctx context.Context, c *args.Client) error {
			s, err := verb.Asked(ctx, c.RollBackSnapshot,
				api.SnapshotRollback{SnapshotNamed: named(c, c.Args[1]), Stop: stop})
			if err == nil {
				s, err = await(ctx, c, s)
			}
			if err != nil {
				return snapshots.Near(ctx, c, c.Args[1], err)
			}
			return c.Report(s, "%s is rolled back to snapshot %s: what was written since %s is discarded", instance(s),
				s.Name, clock(s.Taken))
		}),
	}
	cmd.Flags().BoolVar(&stop, "stop", false, "stop the instance first, and start it again afterwards")
	return cmd
}

// patience is how long remove waits for a host: merging much data takes minutes.
const patience = 10 * time.Second

// awaitRemoval waits until a snapshot is removed. False: its host goes on with it.
func awaitRemoval(ctx context.Context, c *args.Client, name string) (gone bool, err error) {
	return verb.Gone(ctx, patience, poll, func(ctx context.Context) error {
		now, err := c.GetSnapshot(ctx, named(c, name))
		if err == nil && now.Error != "" {
			err = croft.Errorf(croft.Unavailable, "snapshot %s is ordered to be removed, and still there: %s", name,
				now.Error)
		}
		return err
	})
}

func removeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "remove INSTANCE NAME...",
		Short: "Remove snapshots; the disks keep their data",
		Long: `remove removes snapshots. The host merges what was written since into the disks, also
while the guest runs. If that takes long, remove returns before it is done; croft
snapshot list shows a snapshot until then.`,
		ValidArgsFunction: complete(-1),
		RunE: verb.Wait(func(ctx context.Context, c *args.Client) error {
			return verb.Each(c.Args[1:], snapshots.Known(ctx, c), func(name string) error {
				err := verb.Within(ctx, func(ctx context.Context) error {
					return c.RemoveSnapshot(ctx, named(c, name))
				})
				gone := false
				if err == nil {
					gone, err = awaitRemoval(ctx, c, name)
				}
				switch {
				case err != nil:
					return snapshots.Near(ctx, c, name, err)
				case gone:
					c.Say("snapshot %s is removed", name)
				default:
					c.Say("snapshot %s is being removed: its host merges it in the background", name)
				}
				return nil
			})
		}),
	}
}
