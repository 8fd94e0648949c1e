package instances

import (
	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cloud"
)

func rebootCommand() *cobra.Command {
	cmd := changeCommand("reboot", "Shut instances down and boot them again", nil, cloud.Changes.Reboot, "is to reboot")
	args.AddWaitFlags(cmd.Flags(), "the instance runs again and has an address")
	return cmd
}

func rebuildCommand() *cobra.Command {
	cmd := changeCommand("rebuild", "Give instances a fresh disk made of their image", nil, cloud.Changes.Rebuild,
		"is to be rebuilt: what was on its disk is lost")
	cmd.Long = `rebuild gives instances a fresh disk made of their image, and boots them from it.
They keep their UUID, their name, their host, their claim and their address. What was
on the disk is lost once the image is there; an image that cannot be had loses nothing.`
	args.AddWaitFlags(cmd.Flags(), "the instance runs again and has an address")
	return cmd
}

// resizeCommand explains why resizing does not exist.
func resizeCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "resize UUID|NAME [QUERY]",
		Short:  "Say why an instance keeps its size",
		Hidden: true,
		Args:   args.Count(1, 2),
		RunE: func(_ *cobra.Command, args []string) error {
			return croft.Errorf(croft.Invalid,
				"resize %s: an instance keeps the size that was claimed for it, since its host may have no room for more; "+
					"ask for another of the size you want, move what is on the disk, and destroy this one", args[0])
		},
	}
}
