// Package backups has the commands for backups of instances: croft backup.
package backups

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/verb"
	"croft/compute/backup"
	"croft/control/api"
	"croft/internal/command"
	"croft/internal/delay"
	"croft/internal/out"
)

// Command returns the command croft backup.
func Command() *cobra.Command {
	return verb.CloudGroup("backup", "Keep copies of instances outside the hosts",
		`backup copies all disks of an instance, as they are at one moment, to a store outside the
hosts: a repository of restic, which stores equal data once, and encrypts it. A backup
is restored on any host, also when the instance and its host are gone.`, `  croft backup store add main /mnt/backups --password-file secret
  croft backup create web
  croft backup restore web-20270102-030405 --as web2
  croft backup schedule create nightly --at 03:00 --keep-daily 7 --keep-weekly 4`,
		createCommand(), listCommand(), backups.Show("Show a backup"), checkCommand(), restoreCommand(),
		removeCommand(),
		overdueCommand(), storeCommand(), scheduleCommand())
}

var backups = verb.Noun[api.Backup]{
	Name: "backup",
	All: func(ctx context.Context, c *args.Client) ([]api.Backup, error) {
		list, err := c.ListBackups(ctx, api.InProject{Project: c.Project})
		if err == nil {
			c.NoteUnknownProject(c.Cmd, len(list.Backups))
		}
		return list.Backups, err
	},
	Find: func(ctx context.Context, c *args.Client, name string) (api.Backup, error) {
		return c.GetBackup(ctx, named(c, name))
	},
	Word: func(b api.Backup) (string, string) { return b.Name, "of " + b.InstanceName + ", " + string(b.State) },
	Head: []string{"NAME", "INSTANCE", "STATE", "METHOD", "SIZE", "ADDED", "STORE", "TAKEN", "REASON"},
	Row: func(b api.Backup) []out.Cell {
		return verb.Texts(b.Name, b.InstanceName, state(b), b.Method, fmt.Sprintf("%dG", b.SizeGB), bytes(b.Added),
			b.Store, clock(b.Taken), b.Error)
	},
	Rows: func(t *out.Table, b api.Backup) {
		for _, row := range [][2]string{{"name", b.Name}, {"id", b.ID}, {"project", string(b.Project)},
			{"instance", b.InstanceName + " (" + string(b.Instance) + ")"}, {"store", b.Store}, {"state", state(b)},
			{"error", b.Error}, {"size", fmt.Sprintf("%dG", b.SizeGB)}, {"added", bytes(b.Added)}, {"method", b.Method},
			{"note", b.Note}, {"taken", clock(b.Taken)}, {"complete", clock(b.Done)}, {"checked", clock(b.Checked)},
			{"schedule", b.Schedule}, {"image", b.Image}, {"query", b.Query}, {"created",
				b.Created.Format(time.DateTime)}} {
			if row[1] != "" {
				t.Texts(row[0], row[1])
			}
		}
		for _, d := range b.Disks {
			what := "disk"
			if d.Volume != "" {
				what = "volume " + d.Volume
			}
			t.Texts(what, strings.TrimSpace(fmt.Sprintf("%dG sha256 %s %s", d.SizeGB, d.SHA256, restic(d))))
		}
	},
}

func restic(d api.BackupDisk) string {
	if d.Restic == "" {
		return ""
	}
	return "in restic's snapshot " + d.Restic
}

func named(c *args.Client, name string) api.BackupNamed {
	return api.BackupNamed{InProject: api.InProject{Project: c.Project}, Name: name}
}

// state returns the state of a backup, with its progress.
func state(b api.Backup) string {
	if p := b.Progress; p != nil && p.Total > 0 && (b.State == backup.Creating || b.State == backup.Checking) {
		return fmt.Sprintf("%s, %d%%", b.State, p.Done*100/p.Total)
	}
	return string(b.State)
}

func clock(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.Format(time.DateTime)
}

// bytes returns a number of bytes for people.
func bytes(n int64) string {
	switch {
	case n == 0: // unknown, or not for this user
		return ""
	case n >= 1<<30:
		return fmt.Sprintf("%.1fG", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1fM", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1fK", float64(n)/(1<<10))
}

// poll is how often a command looks whether a host has done what was ordered.
const poll = 300 * time.Millisecond

// await returns the backup once nothing is done with it any more, and says how far that is.
func await(ctx context.Context, c *args.Client, b api.Backup) (api.Backup, error) {
	said, why := "", ""
	for b.State == backup.Creating || b.State == backup.Checking {
		if now := state(b); now != said && b.Progress != nil {
			said = now
			c.Say("backup %s: %s", b.Name, now)
		}
		if b.Error != why && b.Error != "" {
			why = b.Error
			c.Say("backup %s: %s", b.Name, why)
		}
		err := delay.For(ctx, poll)
		if err == nil {
			b, err = verb.Asked(ctx, c.GetBackup, named(c, b.Name))
		}
		if err != nil {
			return b, err
		}
	}
	switch b.State {
	case backup.Failed:
		return b, croft.Errorf(cmp.Or(b.ErrorKind, croft.Unavailable), "backup %s was not made: %s", b.Name, b.Error)
	case backup.Damaged:
		return b, croft.Errorf(croft.Unavailable, "backup %s is damaged: %s", b.Name, b.Error)
	}
	if b.Error != "" {
		return b, croft.Errorf(croft.Unavailable, "backup %s: %s", b.Name, b.Error)
	}
	return b, nil
}

func createCommand() *cobra.Command {
	var in api.NewBackup
	var noWait bool
	cmd := &cobra.Command{
		Use:   "create INSTANCE [NAME]",
		Short: "Back up an instance",
		Long: `create copies all disks of an instance to a store. It takes a temporary snapshot, which
needs room for the size of all disks on the host, and removes it afterwards. If the
instance runs and its guest agent answers, the agent freezes the file systems while the
snapshot is taken; the message says whether it was. The instance goes on meanwhile.`,
		ValidArgsFunction: args.CompleteInstances(1),
		RunE: verb.Wait(func(ctx context.Context, c *args.Client) error {
			in.InstanceNamed = c.Named(c.Args[0])
			if len(c.Args) > 1 {
				in.Name = c.Args[1]
			}
			b, err := verb.Asked(ctx, c.CreateBackup, in)
			if err != nil {
				return c.Nearest(ctx, c.Args[0], err)
			}
			if noWait {
				return c.Report(b, "backup %s of %s is ordered", b.Name, b.InstanceName)
			}
			if b, err = await(ctx, c, b); err != nil {
				return err
			}
			added := ""
			if b.Added > 0 { // for operators
				added = " (" + bytes(b.Added) + " new in the store)"
			}
			return c.Report(b, "backup %s of %s is made%s: %s", b.Name, b.InstanceName, added, taken(b))
		}),
	}
	cmd.Flags().StringVar(&in.Store, "store", "", "the `store` (the only one that the project may use)")
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "return when it is ordered")
	return cmd
}

// taken describes how the disks were captured.
func taken(b api.Backup) string {
	switch croft.Method(b.Method) {
	case croft.MethodQuiesced:
		return "the guest was quiesced"
	case croft.MethodOff:
		return "the guest was off"
	}
	return "the guest was not quiesced: " + b.Note
}

func listCommand() *cobra.Command { return backups.List("List the backups") }

func checkCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check NAME...",
		Short: "Read all data of backups, and compare their digests",
		Long: `check has a host read all data of a backup, and compares the digests of its disks with
those from when it was made. croft backup store check does so for a whole store.`,
		ValidArgsFunction: complete(-1),
		RunE: verb.Wait(func(ctx context.Context, c *args.Client) error {
			return verb.Each(c.Args, backups.Known(ctx, c), func(name string) error {
				b, err := verb.Asked(ctx, c.CheckBackup, named(c, name))
				if err == nil {
					b, err = await(ctx, c, b)
				}
				if err != nil {
					return backups.Near(ctx, c, name, err)
				}
				c.Say("backup %s is complete and has the right data", b.Name)
				return nil
			})
		}),
	}
}

// complete completes names of backups, up to most arguments; -1: any number.
func complete(most int) cobra.CompletionFunc {
	return verb.Complete(most, func(ctx context.Context, c *args.Client, offer args.Offer) error {
		return backups.Offer(ctx, c, offer)
	})
}

func restoreCommand() *cobra.Command {
	var in api.BackupRestore
	var noWait bool
	cmd := &cobra.Command{
		Use:   "restore NAME",
		Short: "Restore a backup as a new instance, or in place",
		Long: `restore makes the disks of a backup again, and verifies them before an instance uses them.
With --as it makes a new instance on any host, with another UUID, other addresses and
another SSH host key; what is on the disk, such as the machine ID, is that of the
original. It gets new volumes with the data of those in the backup; where a name is
taken, its name and a dash go before it. With --in-place it replaces the disks of the
backup's instance, which must be stopped and stays so: what was written since is lost
once the restored disks are complete; if they are damaged, the instance keeps its disks.
An instance that was lost with its host is made again on another one, with its volumes,
and boots.`,
		ValidArgsFunction: complete(1),
		RunE: verb.Wait(func(ctx context.Context, c *args.Client) error {
			in.BackupNamed = named(c, c.Args[0])
			inst, err := verb.Asked(ctx, c.RestoreBackup, in)
			if err != nil {
				return backups.Near(ctx, c, c.Args[0], err)
			}
			if noWait {
				return c.Report(inst, "instance %s is being restored from backup %s", inst.Name, c.Args[0])
			}
			if inst, err = awaitRestore(ctx, c, inst); err != nil {
				return err
			}
			return c.Report(inst, "instance %s is restored from backup %s; %s", inst.Name, c.Args[0], next(inst))
		}),
	}
	cmd.Flags().StringVar(&in.As, "as", "", "the `name` of a new instance")
	cmd.Flags().BoolVar(&in.InPlace, "in-place", false, "replace the disks of its instance, which is stopped or lost")
	cmd.Flags().StringVar(&in.Host, "host", "", "the `host` of the new instance, for operators (one with room)")
	cmd.Flags().BoolVar(&in.WithoutVolumes, "without-volumes", false,
		"restore the instance's own disk only, though the backup has volumes too")
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "return when it is ordered")
	return cmd
}

// awaitRestore returns the instance once its host has restored it.
func awaitRestore(ctx context.Context, c *args.Client, inst api.Instance) (api.Instance, error) {
	name, said := inst.ID, ""
	for {
		now, err := verb.Asked(ctx, c.GetInstance, api.InstanceShown{InstanceNamed: c.Named(string(name))})
		switch {
		case err != nil:
			return inst, err
		case now.State == string(croft.StateFailed) && (now.Backup == nil || now.Backup.State == api.Unrestored):
			return now, croft.Errorf(croft.Unavailable, "instance %s was not restored, and has no disks yet: %s; "+
				"`schedule start %s` tries it again", now.Name, now.Error, now.Name)
		case now.Backup != nil && now.Backup.State == api.Unrestored:
			return now, croft.Errorf(croft.Unavailable, "instance %s was not restored, and keeps its disks: %s",
				now.Name, now.Backup.Error)
		case now.Backup != nil && now.Backup.State == api.Restored:
			return now, nil
		}
		if text := restored(now); text != said && text != "" {
			said = text
			c.Say("instance %s: restoring, %s", now.Name, text)
		}
		if err := delay.For(ctx, poll); err != nil {
			return inst, err
		}
	}
}

// restored describes how much of an instance is restored; empty: that is unknown.
func restored(inst api.Instance) string {
	if inst.Backup == nil || inst.Backup.Progress == nil || inst.Backup.Progress.Total == 0 {
		return ""
	}
	p := inst.Backup.Progress
	return fmt.Sprintf("%d%% of %s", p.Done*100/p.Total, bytes(p.Total))
}

// next describes what the guest of a restored instance does, and the next command.
func next(inst api.Instance) string {
	if inst.State == string(croft.StateStopped) {
		return fmt.Sprintf("it is off, and `schedule start %s` boots it", inst.Name)
	}
	return fmt.Sprintf("it boots, and `schedule wait %s` waits for that", inst.Name)
}

func removeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "remove NAME...",
		Short: "Remove backups, and the data that no other backup needs",
		Long: `remove removes backups from their store. If that takes long, it returns before it is done;
croft backup list shows a backup until then.`,
		ValidArgsFunction: complete(-1),
		RunE: verb.Wait(func(ctx context.Context, c *args.Client) error {
			return verb.Each(c.Args, backups.Known(ctx, c), func(name string) error {
				if err := verb.Within(ctx, func(ctx context.Context) error {
					return c.RemoveBackup(ctx, named(c, name))
				}); err != nil {
					return backups.Near(ctx, c, name, err)
				}
				gone, err := awaitRemoval(ctx, c, name)
				if err == nil && gone {
					c.Say("backup %s is removed", name)
				} else if err == nil {
					c.Say("backup %s is being removed", name)
				}
				return err
			})
		}),
	}
}

// patience is how long remove waits.
const patience = 30 * time.Second

func awaitRemoval(ctx context.Context, c *args.Client, name string) (gone bool, err error) {
	return verb.Gone(ctx, patience, poll, func(ctx context.Context) error {
		now, err := c.GetBackup(ctx, named(c, name))
		if err == nil && now.Error != "" {
			err = croft.Errorf(croft.Unavailable, "backup %s: %s; it is tried again", name, now.Error)
		}
		return err
	})
}

func overdueCommand() *cobra.Command {
	var than time.Duration
	cmd := &cobra.Command{
		Use:   "overdue",
		Short: "List the instances without a recent backup",
		Long: `overdue lists the instances whose newest backup is older than one and a half intervals of
the schedule that makes backups of them, or than a day if none does. With --than it lists
the instances whose newest backup is older than that time, or that have none.`,
		Args: command.Count(0, 0),
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			list, err := c.ListUnprotected(ctx, api.OverdueFilter{InProject: api.InProject{Project: c.Project},
				Than: int64(than / time.Second)})
			if err != nil {
				return err
			}
			return c.Print(list, func(t *out.Table) {
				t.Head("INSTANCE", "PROJECT", "SCHEDULE", "LAST BACKUP", "FAILED", "REASON")
				for _, u := range list.Instances {
					last := "never"
					if u.Last != nil {
						last = u.Last.Format(time.DateTime)
					}
					t.Texts(u.Name, string(u.Project), out.OrDash(u.Schedule), last, clock(u.FailedAt), u.Failed)
				}
			})
		}),
	}
	command.DurationVar(cmd.Flags(), &than, "than", 0,
		"how old the newest backup may be, from `1m` on (as schedules say)")
	return cmd
}
