package hosts

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/verb"
	"croft/control/api"
	"croft/hosts"
	"croft/internal/out"
	"croft/internal/plain"
	"croft/internal/wording"
)

// fenceTimeout limits the time to fence a host: its fence agent, and then one request per instance.
const fenceTimeout = 15 * time.Minute

func fenceCommand() *cobra.Command {
	var off, confirmed, on bool
	var yes string
	cmd := &cobra.Command{
		Use:   "fence UUID|NAME --off|--confirm-off|--on",
		Short: "Declare a host dead, so that its instances run elsewhere",
		Long: `fence --off switches a host off by its fence agent (host.fence in the settings of the
server) and declares it dead. If the agent does not report it as off afterwards, nothing
changes. --confirm-off declares a host dead that you have switched off yourself.

The command asks for the name of the host again, on standard input; --yes NAME answers.
Be sure: a guest that still runs on the host would run twice.

The instances of the host are lost. Those with --restart elsewhere are recreated on other
hosts with the same name and UUID, as soon as a host has room: with their disks if these
are on shared storage, else from their last backup (--restart elsewhere:backup) or from
their images. The others stay on record until "croft backup restore NAME --in-place",
"schedule recreate" or "schedule remove".

A host that returns starts nothing, and keeps the disks of the instances that it lost
until "croft host leftover remove". --on takes it back: it gets new instances again.`,
		ValidArgsFunction: args.CompleteHosts,
		RunE: func(cmd *cobra.Command, given []string) error {
			chosen := 0
			for _, flag := range []bool{off, confirmed, on} {
				if flag {
					chosen++
				}
			}
			if chosen != 1 {
				return croft.Errorf(croft.Invalid, "fence host %s: say either --off, --confirm-off or --on", given[0])
			}
			return args.With(cmd, func(ctx context.Context, c *args.Client) error {
				ctx, cancel := context.WithTimeout(ctx, fenceTimeout)
				defer cancel()
				if on {
					h, err := c.TakeHostBack(ctx, api.HostNamed{ID: given[0]})
					if err != nil {
						return err
					}
					if h.Drained {
						return reportChange(ctx, c, h, "is taken back, and still drained")
					}
					return reportChange(ctx, c, h, "is taken back, and takes new instances")
				}
				return fence(ctx, cmd, c, given[0], confirmed, yes)
			})
		},
	}
	cmd.Flags().BoolVar(&off, "off", false, "switch it off by its fence agent, and declare it dead")
	cmd.Flags().BoolVar(&confirmed, "confirm-off", false, "declare it dead: you have switched it off yourself")
	cmd.Flags().BoolVar(&on, "on", false, "take it back after it was declared dead")
	cmd.Flags().StringVar(&yes, "yes", "", "the name of the host once more, instead of a question")
	return cmd
}

// fence declares a host dead after its name was given again.
func fence(ctx context.Context, cmd *cobra.Command, c *args.Client, idOrName string, confirmed bool, yes string) error {
	h, err := c.GetHost(ctx, api.HostNamed{ID: idOrName})
	if err != nil {
		return err
	}
	if !confirmed && h.NoFence != "" && (h.Death == nil || h.Alive) { // one that was declared dead is finished
		return croft.Errorf(croft.Invalid, "fence host %s: %s", plain.Line(h.Name), h.NoFence)
	}
	if confirmed && h.Alive {
		return croft.Errorf(croft.Conflict, "fence host %s: its agent is alive, so it is not off; an agent that dies counts "+
			"as alive for ten seconds", plain.Line(h.Name))
	}
	question := fmt.Sprintf("host %s (%s) has %s, whose disks may be lost; to declare it dead, type its name again: ",
		plain.Line(h.Name), h.State, wording.Count(h.Count, "instance"))
	if err := verb.NameAgain(cmd, "fence host", h.Name, yes, question); err != nil {
		return err
	}
	how := croft.FencedOff
	if confirmed {
		how = croft.ConfirmedOff
	}
	fenced, err := c.FenceHost(ctx, api.HostFence{HostNamed: api.HostNamed{ID: string(h.ID)}, How: how,
		Confirm: h.Name})
	if err == nil {
		err = c.Report(hostData{fenced.Host, fenced.State}, "host %s is declared dead", plain.Line(h.Name))
	}
	tellLost(cmd.ErrOrStderr(), fenced.Lost)
	return err
}

func leftoverCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "leftover",
		Short: "List or remove what lost instances left on a host",
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "list UUID|NAME",
		Short: "List what lost instances left on a host",
		Long: `list shows the instances that were lost with a host and whose disks are kept there. NOW
is the state of the instance and, if it is on another host, the name of that; GUEST is how
the host last saw the guest here since it returned; DISK is the nominal size. No command
gives an instance the disk back that is here: copy it out with qemu-img, and add it as an
image (see "A host dies" in the documentation). The instance cannot come back to the host
before "croft host leftover remove".`,
		ValidArgsFunction: args.CompleteHosts,
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			list, err := c.ListLeftovers(ctx, api.HostNamed{ID: c.Args[0]})
			if err != nil {
				return err
			}
			return printLeftovers(c, list.Leftovers)
		}),
	}, &cobra.Command{
		Use:   "remove UUID|NAME INSTANCE",
		Short: "Remove the guest and the disks that an instance left on a host",
		Long: `remove orders the host to remove the guest and the disks of an instance that was lost
with the host, given by UUID, or by name if no other one of that name left something there.
There is no way back. An instance that runs elsewhere is not affected.`,
		ValidArgsFunction: args.CompleteHosts,
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			err := c.RemoveLeftover(ctx, api.LeftoverNamed{HostNamed: api.HostNamed{ID: c.Args[0]},
				Instance: c.Args[1]})
			if err == nil {
				c.Say("the leftover of instance %s will be removed", plain.Line(c.Args[1]))
			}
			return err
		}),
	})
	return cmd
}

func printLeftovers(c *args.Client, all []hosts.Leftover) error {
	return c.Print(all, func(t *out.Table) {
		t.Head("NAME", "PROJECT", "DISK", "NOW", "GUEST", "SINCE", "INSTANCE")
		for _, l := range all {
			now := cmp.Or(l.State, "removed")
			if l.Now != "" {
				now += " on " + cmp.Or(l.NowName, string(l.Now))
			}
			size := "-"
			if l.DiskGB > 0 {
				size = fmt.Sprintf("%dG", l.DiskGB)
			}
			t.Texts(l.Name, string(l.Project), size, now, out.OrDash(string(l.Seen)), l.Since.Format(time.DateOnly),
				string(l.Instance))
		}
	})
}
