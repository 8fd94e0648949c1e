package instances

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/sizes"
	"croft/client"
	"croft/control/api"
	"croft/schedule"
)

func removeCommand() *cobra.Command {
	all := subjects{ends: "remove"}
	cmd := &cobra.Command{
		Use:   "remove [UUID|NAME...]",
		Short: "Remove instances with their disks, addresses and claims",
		Long: `remove orders instances to be removed. It returns when the order is written; with
--wait, when nothing is left of them. Instances that have snapshots are refused, unless
--snapshots is given.

An instance whose host is silent is removed when the host returns. With --force its
claim and its name are free at once. A lost instance is given up at once. A member of a
cluster is removed by the cluster; with --force it is destroyed anyway, and the cluster
treats it as lost. A protected instance stays: see schedule protect.

` + aboutChoices + ` At a terminal, remove shows the list and
asks before it removes several instances; elsewhere the flags need --yes.`,
		Example: `  schedule remove web db
  schedule remove --filter env=test --yes`,
		ValidArgsFunction: args.CompleteInstances(-1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return within(cmd, func(ctx context.Context, c *session) error {
				return c.changeChosen(ctx, cmd, &all, args, schedule.Gone, func(ctx context.Context,
					in api.InstanceChange) (api.Instance, string, error) {
					i, err := c.DestroyInstance(ctx, api.InstanceRemoval{InstanceChange: in, Force: all.force,
						Snapshots: all.snapshots})
					words := "is being removed"
					switch {
					case i.Gone:
						words = "is gone"
					case all.force && i.Cluster != "":
						words += "; cluster " + string(i.Cluster) + " loses it"
					case all.force:
						words += " by its host, which is not silent: there was nothing to force"
					}
					return i, words, err
				})
			})
		},
	}
	cmd.Flags().BoolVar(&all.force, "force", false, "free claim and name of an instance whose host is silent; destroy a member of a cluster")
	all.addTo(cmd)
	cmd.Flags().BoolVar(&all.snapshots, "snapshots", false, "remove the snapshots of the instances, too")
	args.AddWaitFlags(cmd.Flags(), "nothing is left")
	return cmd
}

// aboutChoices is a part of the help of commands that change instances.
const aboutChoices = `Instead of names, the flags --filter, --tag, --state and --host choose the instances of the
project, as in schedule list. If one of several named instances does not exist, or is one
that the command may not change, nothing is done. Chosen instances that it may not change
are left alone and named, and the exit code is 5. A later failure with one instance does not
stop the others.`

func stopCommand() *cobra.Command {
	var force bool
	stop := func(c *client.Client, ctx context.Context, in api.InstanceChange) (api.Instance, error) {
		return c.StopInstance(ctx, api.InstanceStop{InstanceChange: in, Force: force})
	}
	cmd := changeCommand("stop", "Shut instances down; they keep disk and claim", schedule.Stopped, stop, "will stop",
		&subjects{})
	cmd.Long = `stop asks the guests to shut down. A guest that has not done so after a minute
(libvirt.stop_grace in the settings of its host) loses its power. With --force it loses its
power at once, also while it shuts down: what it has not written to its disks is lost.

` + aboutChoices
	cmd.Example = `  schedule stop web
  schedule stop --filter env=test --wait`
	cmd.Flags().BoolVar(&force, "force", false, "cut the power at once, without asking the guests to shut down")
	args.AddWaitFlags(cmd.Flags(), "the instance is shut off")
	return cmd
}

func startCommand() *cobra.Command {
	cmd := changeCommand("start", "Boot instances that were stopped, or try those again that failed", nil,
		(*client.Client).StartInstance, "will run", &subjects{})
	args.AddWaitFlags(cmd.Flags(), "the instance runs and has an address")
	return cmd
}

// powering is an operation that changes an instance.
type powering func(*client.Client, context.Context, api.InstanceChange) (api.Instance, error)

// changeCommand returns a command that changes instances until they reach goal; nil: they are to run, to the extent
// that the settings wait for.
func changeCommand(verb, short string, goal schedule.Goal, power powering, words string, all *subjects) *cobra.Command {
	cmd := &cobra.Command{
		Use:               verb + " [UUID|NAME...]",
		Short:             short,
		Long:              strings.ToUpper(short[:1]) + short[1:] + ".\n\n" + aboutChoices,
		ValidArgsFunction: args.CompleteInstances(-1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return within(cmd, func(ctx context.Context, c *session) error {
				until := goal
				if until == nil {
					until = c.Settings.Wait.Goal()
				}
				return c.changeChosen(ctx, cmd, all, args, until, func(ctx context.Context,
					in api.InstanceChange) (api.Instance, string, error) {
					i, err := power(c.Client.Client, ctx, in)
					return i, words + onceBack(i), err
				})
			})
		},
	}
	all.addTo(cmd)
	return cmd
}

// onceBack returns a note that an ordered change waits for its host, which is silent; empty: the host is not silent.
func onceBack(i api.Instance) string {
	if i.HostAlive == nil || *i.HostAlive {
		return ""
	}
	return " once its host is back, which is silent" + Since(i.HostSeen)
}

// changing changes an instance and describes in words what it is doing now.
type changing func(context.Context, api.InstanceChange) (api.Instance, string, error)

func (c *session) changeOne(ctx context.Context, idOrName string, do changing) (api.Instance, string, error) {
	ctx, cancel := context.WithTimeout(ctx, args.AnswerTimeout)
	defer cancel()
	i, words, err := do(ctx, api.InstanceChange{InstanceNamed: c.Named(idOrName)})
	return i, words, c.Nearest(ctx, idOrName, err)
}

// changeChosen does the same as change for the instances that a command names or chooses.
func (c *session) changeChosen(ctx context.Context, cmd *cobra.Command, all *subjects, given []string,
	goal schedule.Goal, do changing) error {
	names, left, err := all.of(ctx, c, given)
	if err != nil {
		return err
	}
	return c.Traced(ctx, cmd.Name(), func(ctx context.Context) error {
		return errors.Join(left, c.changeAll(ctx, cmd, names, all.given() || len(given) > 1, goal, do))
	})
}

// change applies a change to each instance, prints it, and waits for all of them at once if requested. If one of
// several does not exist, nothing is changed; a later failure with one instance does not stop the others.
func (c *session) change(ctx context.Context, cmd *cobra.Command, args []string, goal schedule.Goal,
	do changing) error {
	names, _, err := (&subjects{}).of(ctx, c, args)
	if err != nil {
		return err
	}
	return c.Traced(ctx, cmd.Name(), func(ctx context.Context) error {
		return c.changeAll(ctx, cmd, names, len(args) > 1, goal, do)
	})
}

// changeAll does the same as change; programs get a list of the changed instances if list is true.
func (c *session) changeAll(ctx context.Context, cmd *cobra.Command, args []string, list bool, goal schedule.Goal,
	do changing) error {
	changed := []api.Instance{}
	var errs []error
	for _, arg := range args {
		i, words, err := c.changeOne(ctx, arg, do)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		changed = append(changed, i)
		if !c.Settings.Wait.Any() && !c.WantsData() {
			c.Say("instance %s %s", i.Name, words)
		}
	}
	if c.Settings.Wait.Any() {
		errs = append(errs, c.wait(ctx, cmd, changed, goal)...)
	}
	return errors.Join(append(errs, c.printChanged(ctx, changed, list))...)
}

// printChanged prints the changed instances as they are now, for programs.
func (c *session) printChanged(ctx context.Context, changed []api.Instance, list bool) error {
	if !c.WantsData() || len(changed) == 0 && !list {
		return nil
	}
	for n, i := range changed {
		in := api.InstanceShown{InstanceNamed: api.InstanceNamed{ID: string(i.ID)}}
		if now, err := c.GetInstance(ctx, in); err == nil { // else it is gone
			changed[n] = now
		}
	}
	return printFull(c.Cmd, c.Settings.Output, changed, list)
}

func ejectCommand() *cobra.Command {
	var all subjects
	cmd := changeCommand("eject", "Empty the CD drive of instances", schedule.Ejected, (*client.Client).EjectInstance,
		"has an empty CD drive", &all)
	cmd.Long = `eject takes the ISO that an instance was made with (--iso) out of its CD drive, for good: it
stays out when the instance is stopped, rebuilt, moved or recreated. A guest that runs goes
on, and one that is off stays off. A lost instance has an empty drive once it runs again.

` + aboutChoices
	cmd.Example = `  schedule DISK_GB:20,VCPU:2,MEMORY_MB:2048 --name web --iso debian-netinst
  schedule eject web`
	args.AddWaitFlags(cmd.Flags(), "the drive is empty")
	return cmd
}

func rebootCommand() *cobra.Command {
	cmd := changeCommand("reboot", "Shut instances down and boot them again", nil,
		(*client.Client).RebootInstance, "will reboot", &subjects{})
	args.AddWaitFlags(cmd.Flags(), "the instance runs again and has an address")
	return cmd
}

func rebuildCommand() *cobra.Command {
	cmd := changeCommand("rebuild", "Replace the disks of instances by new ones from their images", nil,
		(*client.Client).RebuildInstance, "will be rebuilt: the contents of its disk are lost",
		&subjects{ends: "rebuild"})
	cmd.Long = `rebuild gives instances a new disk from their image, and boots them from it. They keep
their UUID, their name, their host, their claim and their address. The contents of the
old disk are lost once the image is fetched; if that fails, nothing is lost.

` + aboutChoices + ` At a terminal, rebuild shows the
list and asks before it rebuilds several instances; elsewhere the flags need --yes.`
	args.AddWaitFlags(cmd.Flags(), "the instance runs again and has an address")
	return cmd
}

func recreateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "recreate UUID|NAME...",
		Short:             "Schedule lost instances again",
		ValidArgsFunction: args.CompleteInstances(-1, croft.StateLost),
		RunE: func(cmd *cobra.Command, args []string) error {
			return within(cmd, func(ctx context.Context, c *session) error {
				return c.change(ctx, cmd, args, c.Settings.Wait.Goal(), c.recreate)
			})
		},
	}
	cmd.Long = `recreate schedules instances again that were lost: their host was declared dead
(croft host fence, croft host remove --force). Each gets a host with room, and keeps its
UUID, name, size, keys, tags and user-data. It has its disk if that is on shared storage,
and the disk of its last backup with --restart elsewhere:backup. Otherwise it gets a new
disk from its image, without what was on the old one; croft backup restore NAME --in-place
makes a lost instance again from a backup instead, with its volumes.

If no host has room for an instance, it stays lost. schedule list --state lost shows
all, and schedule remove gives one up.`
	args.AddWaitFlags(cmd.Flags(), "the instance runs and has an address")
	return cmd
}

// recreate schedules a lost instance again, and says which disk it has.
func (c *session) recreate(ctx context.Context, in api.InstanceChange) (api.Instance, string, error) {
	before, err := c.GetInstance(ctx, api.InstanceShown{InstanceNamed: in.InstanceNamed})
	if err != nil {
		return before, "", err
	}
	i, err := c.RecreateInstance(ctx, in)
	words := "will run on another host"
	switch {
	case i.OnStorage != "":
		words += ", with its disk"
	case i.Backup != nil:
		words += ", with the disk of backup " + i.Backup.Name
	case before.LastBackup != "":
		words += fmt.Sprintf(", with a new disk from its image; `croft backup restore %s --in-place` restores its last "+
			"backup once it is stopped", before.LastBackup)
	}
	return i, words, err
}

func resizeCommand() *cobra.Command {
	var size string
	cmd := &cobra.Command{
		Use:   "resize UUID|NAME [AMOUNTS]",
		Short: "Change the processors, the memory or the disk of an instance",
		Long: `resize gives an instance other amounts, of which those that are not named stay, or those
that a named size has now (croft size list). The instance keeps its host; if that lacks
room, the refusal names the most that fits.

Processors and memory are changed while the instance is stopped. The disk can be made larger
at any time, and never smaller; most images enlarge their file system at the next boot.`,
		Example: `  schedule resize web VCPU:2,MEMORY_MB:2048,DISK_GB:20
  schedule resize web --size large`,
		ValidArgsFunction: args.CompleteInstances(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			var amounts croft.Resources
			switch {
			case (len(args) == 2) == (size != ""):
				return croft.Errorf(croft.Invalid, "resize %s: give either amounts, such as VCPU:2, or --size", args[0])
			case size == "":
				amounts, err = schedule.ParseAmounts(args[1])
			}
			if err != nil {
				return err
			}
			return within(cmd, func(ctx context.Context, c *session) error {
				return c.change(ctx, cmd, args[:1], schedule.Settled, func(ctx context.Context,
					in api.InstanceChange) (api.Instance, string, error) {
					i, err := c.ResizeInstance(ctx, api.InstanceSize{InstanceChange: in, Resources: amounts,
						Size: size})
					return i, "gets " + i.Resources.String() + onceBack(i), err
				})
			})
		},
	}
	cmd.Flags().StringVar(&size, "size", "", "the `name` of the size that it gets")
	_ = cmd.RegisterFlagCompletionFunc("size", sizes.Complete(-1)) // fails only without the flag
	args.AddWaitFlags(cmd.Flags(), "its host has changed it")
	return cmd
}
