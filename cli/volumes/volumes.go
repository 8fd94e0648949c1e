// Package volumes has the commands for volumes, disks of their own that outlive instances: croft volume.
package volumes

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/verb"
	"croft/control/api"
	"croft/internal/delay"
	"croft/internal/out"
	"croft/schedule"
)

// Command returns the command croft volume.
func Command() *cobra.Command {
	return verb.CloudGroup("volume", "Manage volumes: disks that outlive instances",
		`volume manages disks of a project that outlive instances. A volume is on one host, and
an instance to which it is attached runs there; or it is on a storage that several hosts
mount (--shared), and the instance runs on any of them. Guests find it by its serial
number, which is its name if that has at most 20 characters, as
/dev/disk/by-id/virtio-NAME.`, `  croft volume create data 20G
  croft volume create pictures 500G --shared
  schedule VCPU:1,MEMORY_MB:512,DISK_GB:5 debian-12 --name web --volume data
  croft volume grow data 40G
  croft volume detach data
  croft volume attach data other`,
		createCommand(), volumes.List("List the volumes"), volumes.Show("Show a volume"), growCommand(),
		attachCommand(), detachCommand(), removeCommand())
}

var volumes = verb.Noun[api.Volume]{
	Name: "volume",
	All: func(ctx context.Context, c *args.Client) ([]api.Volume, error) {
		list, err := c.ListVolumes(ctx, api.InProject{Project: c.Project})
		if err == nil {
			c.NoteUnknownProject(c.Cmd, len(list.Volumes))
		}
		return list.Volumes, err
	},
	Find: func(ctx context.Context, c *args.Client, name string) (api.Volume, error) {
		return c.GetVolume(ctx, named(c, name))
	},
	Kept: func(v api.Volume) error {
		if v.Instance == "" || v.Detaching {
			return nil
		}
		return croft.Errorf(croft.Conflict, "volume %s: it is attached to instance %s: detach it first", v.Name,
			instance(v))
	},
	Word: func(v api.Volume) (string, string) { return v.Name, fmt.Sprintf("%d GiB, %s", v.SizeGB, v.State) },
	Head: []string{"NAME", "SIZE", "STATE", "INSTANCE", "HOST", "STORAGE", "CREATED"},
	Row: func(v api.Volume) []out.Cell {
		return verb.Texts(v.Name, size(v), v.State, instance(v), v.Host, v.Storage, v.Created.Format(time.DateTime))
	},
	Rows: func(t *out.Table, v api.Volume) {
		for _, row := range [][2]string{{"name", v.Name}, {"id", string(v.ID)}, {"project", string(v.Project)},
			{"size", size(v)}, {"state", v.State}, {"error", v.Error}, {"instance", instance(v)},
			{"device", "/dev/disk/by-id/virtio-" + v.Serial}, {"storage", v.Storage},
			{"host", v.Host}, {"created", v.Created.Format(time.DateTime)}} {
			if row[1] != "" {
				t.Texts(row[0], row[1])
			}
		}
	},
}

func named(c *args.Client, name string) api.VolumeNamed {
	return api.VolumeNamed{InProject: api.InProject{Project: c.Project}, Name: name}
}

func size(v api.Volume) string { return fmt.Sprintf("%dG", v.SizeGB) }

// instance returns the instance that a volume is attached to, for people.
func instance(v api.Volume) string {
	name := v.InstanceName
	if name == "" {
		name = string(v.Instance)
	}
	if v.Detaching {
		name += " (detaching)"
	}
	return name
}

// poll is how often a command looks whether a host has done what was ordered.
const poll = 100 * time.Millisecond

// await returns the volume once done is true, or its host has failed.
func await(ctx context.Context, c *args.Client, v api.Volume, done func(api.Volume) bool) (api.Volume, error) {
	for !done(v) {
		if v.Error != "" {
			return v, croft.Errorf(croft.Unavailable, "volume %s is ordered, and not done yet: %s", v.Name, v.Error)
		}
		err := delay.For(ctx, poll)
		if err == nil {
			v, err = c.GetVolume(ctx, named(c, v.Name))
		}
		if err != nil {
			return v, err
		}
	}
	return v, nil
}

func createCommand() *cobra.Command {
	var host, near, storage string
	var shared bool
	cmd := &cobra.Command{
		Use:   "create NAME SIZE",
		Short: "Create a volume",
		Long: `create makes an empty disk of SIZE, such as 20G, on the host with the most room, or on
the host of the instance that --near names, to which it can be attached. With --shared
or --storage it is on a storage that several hosts mount, and can be attached on each of
them. The project is charged for its DISK_GB until the volume is removed.`,
	}
	cmd.Flags().StringVar(&host, "host", "", "the `host` that it is on, for operators (the one with the most room)")
	cmd.Flags().StringVar(&near, "near", "", "the `instance` on whose host it is")
	cmd.Flags().BoolVar(&shared, "shared", false, "put it on a shared storage, the first by name that has room")
	cmd.Flags().StringVar(&storage, "storage", "", "where it is: local, shared or the `name` of a shared storage (local)")
	_ = cmd.RegisterFlagCompletionFunc("near", args.CompleteInstances(-1)) // fails only without the flag
	cmd.RunE = verb.Run(func(ctx context.Context, c *args.Client) error {
		sizeGB, err := schedule.ParseVolumeSize(c.Args[1])
		if err != nil {
			return err
		}
		switch {
		case shared && storage != "":
			return croft.Errorf(croft.Invalid, "--shared puts the volume on any shared storage, and --storage on %s: leave "+
				"one of the two out", storage)
		case shared:
			storage = croft.StorageShared
		}
		v, err := c.CreateVolume(ctx, api.NewVolume{InProject: api.InProject{Project: c.Project}, Name: c.Args[0],
			SizeGB: sizeGB, Host: host, Near: near, Storage: storage})
		if err == nil {
			v, err = await(ctx, c, v, func(v api.Volume) bool {
				return v.State == string(croft.VolumeAvailable) || v.Instance != ""
			})
		}
		if err != nil {
			return err
		}
		return c.Report(v, "volume %s has %s", v.Name, size(v))
	})
	return cmd
}

func growCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "grow NAME SIZE",
		Short:             "Make a volume larger, even while a guest uses it",
		Long:              `grow makes a volume larger. The guest then enlarges its file system, as with resize2fs.`,
		ValidArgsFunction: volumes.Complete(1),
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			sizeGB, err := schedule.ParseVolumeSize(c.Args[1])
			if err != nil {
				return err
			}
			v, err := c.GrowVolume(ctx, api.VolumeSize{VolumeNamed: named(c, c.Args[0]), SizeGB: sizeGB})
			if err != nil {
				return volumes.Near(ctx, c, c.Args[0], err)
			}
			return c.Report(v, "volume %s has %s", v.Name, size(v))
		}),
	}
}

func attachCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "attach NAME INSTANCE",
		Short: "Attach a volume to an instance on its host",
		Long: `attach attaches a volume to an instance of the project, which may run. Both have to be on
one host, or the instance on a host that mounts the shared storage of the volume:
schedule --volume places an instance where it can have its volume.`,
		ValidArgsFunction: volumes.Complete(1),
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			v, err := c.AttachVolume(ctx, api.VolumeAttachment{VolumeNamed: named(c, c.Args[0]), Instance: c.Args[1]})
			if err != nil {
				return volumes.Near(ctx, c, c.Args[0], err)
			}
			return c.Report(v, "volume %s is attached to %s", v.Name, instance(v))
		}),
	}
}

func detachCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "detach NAME",
		Short: "Detach a volume from its instance, and keep it",
		Long: `detach asks a running guest to release a volume, and waits until it has. Unmount the
volume in the guest first.`,
		ValidArgsFunction: volumes.Complete(1),
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			v, err := c.DetachVolume(ctx, named(c, c.Args[0]))
			if err == nil {
				v, err = await(ctx, c, v, func(v api.Volume) bool { return v.Instance == "" })
			}
			if err != nil {
				return volumes.Near(ctx, c, c.Args[0], err)
			}
			return c.Report(v, "volume %s is detached", v.Name)
		}),
	}
}

// patience is how long remove waits for a host.
const patience = 10 * time.Second

func removeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "remove NAME...",
		Short: "Remove volumes that are not attached, with their data",
		Long: `remove removes volumes with their data, and waits until their hosts have done that. A
host that is silent does it when it returns; croft volume list shows the volume until then.`,
		ValidArgsFunction: volumes.Complete(-1),
		RunE: verb.Wait(func(ctx context.Context, c *args.Client) error {
			return verb.Each(c.Args, volumes.Removable(ctx, c), func(name string) error { return remove(ctx, c, name) })
		}),
	}
}

func remove(ctx context.Context, c *args.Client, name string) error {
	var was api.Volume
	err := verb.Within(ctx, func(ctx context.Context) (err error) {
		if was, err = c.GetVolume(ctx, named(c, name)); err != nil {
			return err
		}
		return c.RemoveVolume(ctx, named(c, name))
	})
	gone := false
	if err == nil {
		gone, err = verb.Gone(ctx, patience, poll, func(ctx context.Context) error { return remains(ctx, c, was) })
	}
	switch {
	case err != nil:
		return volumes.Near(ctx, c, name, err)
	case gone:
		c.Say("volume %s is removed", name)
	default:
		c.Say("volume %s is being removed: its host has not done that yet", name)
	}
	return nil
}

// remains returns NotFound once a volume that is being removed is gone. Another one may have its name by then.
func remains(ctx context.Context, c *args.Client, was api.Volume) error {
	now, err := c.GetVolume(ctx, named(c, was.Name))
	switch {
	case err != nil:
		return err
	case now.ID != was.ID:
		return croft.Errorf(croft.NotFound, "volume %s is gone", was.Name)
	case now.Error != "":
		return croft.Errorf(croft.Unavailable, "volume %s is not removed yet: %s", was.Name, now.Error)
	}
	return nil
}
