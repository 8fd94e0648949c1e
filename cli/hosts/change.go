package hosts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/verb"
	"croft/client"
	"croft/control/api"
	"croft/hosts"
	"croft/internal/out"
	"croft/internal/plain"
)

func drainCommand() *cobra.Command {
	var move bool
	cmd := &cobra.Command{
		Use:   "drain UUID|NAME",
		Short: "Keep new instances away from a host",
		Long: `drain keeps new instances away from a host until croft host enable. Its
instances keep running.

With --move, instances that were asked for with --ephemeral are removed there and
recreated from their images on other hosts, with the same name and UUID; what their
disks held is lost. The others move with their disks, as schedule move does it. Those
that cannot move stay, and are listed with the reason. If the host serves etcd, its
member is removed, unless the others would have no quorum without it. With --wait the
command waits until every instance that moves has left the host. If instances stay, it
ends with exit code 5, after everything else is done. If it is interrupted, ordered moves
continue; the same command again orders the rest.`,
		ValidArgsFunction: args.CompleteHosts,
		RunE: func(cmd *cobra.Command, given []string) error {
			if cmd.Flags().Changed("wait") && !move {
				return croft.Errorf(croft.Invalid, "--wait waits for what moves: add --move")
			}
			return args.With(cmd, func(ctx context.Context, c *args.Client) error {
				draining, cancel := context.WithTimeout(ctx, args.AnswerTimeout)
				defer cancel()
				h, err := c.DrainHost(draining, api.HostNamed{ID: given[0]})
				if err != nil {
					return err
				}
				if !move || !c.WantsData() {
					err = reportChange(ctx, c, h, "takes nothing new")
				}
				if err != nil || !move {
					return err
				}
				return moveAll(ctx, cmd, c, given[0])
			})
		},
	}
	cmd.Flags().BoolVar(&move, "move", false, "move the instances to other hosts")
	args.AddWaitFlags(cmd.Flags(), "the host has no instance left that moves")
	return cmd
}

// reportChange reports a change of a host, or prints the host as it is now for programs.
func reportChange(ctx context.Context, c *args.Client, h api.Host, means string) error {
	if c.WantsData() {
		ctx, cancel := context.WithTimeout(ctx, args.AnswerTimeout)
		defer cancel()
		if now, err := c.GetHost(ctx, api.HostNamed{ID: string(h.ID)}); err == nil {
			h = now
		}
	}
	return c.Report(hostData{h.Host, h.State}, "host %s %s", plain.Line(h.Name), means)
}

// moveTimeout limits the time to order all moves of a host.
const moveTimeout = 10 * time.Minute

// moveAll moves the movable instances and prints the outcome of each.
func moveAll(ctx context.Context, cmd *cobra.Command, c *args.Client, idOrName string) error {
	ordering, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	h, err := c.GetHost(ordering, api.HostNamed{ID: idOrName}) // since the drain it gets no new instances
	if err != nil {
		return err
	}
	named := api.HostNamed{ID: string(h.ID)}
	list, err := c.EmptyHost(ordering, api.HostEmptying{HostNamed: named})
	if err == nil && list.Error != "" {
		err = croft.Errorf(croft.Unavailable, "%s", list.Error)
	}
	if len(list.Moves) > 0 || c.WantsData() {
		err = errors.Join(err, printMoved(c, h.Host, list.Moves))
	}
	if err == nil && cmd.Flags().Changed("wait") && c.Settings.Wait.Any() {
		err = awaitMoved(ctx, c, h.Host, list.Moves)
	}
	if err == nil && h.Etcd != "" {
		if _, err = c.RemoveMember(ordering, named); err == nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "host %s was removed from etcd's members\n", plain.Line(h.Name))
		}
	}
	return errors.Join(err, stay(h.Host, list.Moves))
}

// stay returns an error if instances of a host do not move. Conflict.
func stay(h hosts.Host, all []api.Move) error {
	stays := 0
	for _, m := range all {
		if m.Stays != "" {
			stays++
		}
	}
	if stays == 0 {
		return nil
	}
	return croft.Errorf(croft.Conflict, "empty host %s: %d of its instances stay, for the reasons above", h.Name, stays)
}

// printMoved prints where each instance of a host moves, and with -o json or yaml the host too.
func printMoved(c *args.Client, h hosts.Host, all []api.Move) error {
	type moved struct {
		Name     string           `json:"name"`
		Instance croft.InstanceID `json:"instance"`
		To       string           `json:"to,omitempty"`     // name of the host; empty: it stays
		Reason   string           `json:"reason,omitempty"` // why it stays
	}
	data := struct {
		hostData
		Moved []moved `json:"moved"`
	}{hostData{h, h.State()}, []moved{}}
	for _, m := range all {
		data.Moved = append(data.Moved, moved{m.Name, m.Instance, m.ToName, m.Stays})
	}
	return c.Print(data, func(t *out.Table) {
		t.Head("NAME", "TO", "REASON", "INSTANCE")
		for _, m := range data.Moved {
			t.Texts(m.Name, cmp.Or(m.To, "stays"), out.OrDash(m.Reason), string(m.Instance))
		}
	})
}

// awaitMoved waits until all instances that move have left the host.
func awaitMoved(ctx context.Context, c *args.Client, h hosts.Host, all []api.Move) error {
	ctx, cancel := context.WithTimeout(ctx, c.Settings.Timeout)
	defer cancel()
	if err := c.AwaitMoved(ctx, h.ID, all); err != nil {
		return fmt.Errorf("empty host %s: %w", h.Name, err)
	}
	return nil
}

func enableCommand() *cobra.Command {
	cmd := changeHostCommand((*client.Client).EnableHost, "takes new instances")
	cmd.Use, cmd.Aliases = "enable UUID|NAME", []string{"undrain"}
	cmd.Short = "Let new instances come to a host again"
	return cmd
}

func acceptCommand() *cobra.Command {
	cmd := changeHostCommand((*client.Client).AcceptHost, "may be served by another machine or from another directory")
	cmd.Use = "accept UUID|NAME"
	cmd.Short = "Accept a host's agent on another machine or with another state directory"
	cmd.Long = `accept lets the agent of a host serve it from another machine or another state
directory than before, as after its disks were put into another machine. Until then
such an agent does nothing, since it may run on a copy. Make sure that the machine
from before is off: a guest that still runs there would run twice.`
	return cmd
}

// changeHostCommand applies one change to one host and explains its effect.
func changeHostCommand(change func(*client.Client, context.Context, api.HostNamed) (api.Host, error),
	means string) *cobra.Command {
	return &cobra.Command{
		ValidArgsFunction: args.CompleteHosts,
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			h, err := change(c.Client, ctx, api.HostNamed{ID: c.Args[0]})
			if err != nil {
				return err
			}
			return reportChange(ctx, c, h, means)
		}),
	}
}

func removeCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:     "remove UUID|NAME",
		Aliases: []string{"forget"},
		Short:   "Remove a host that does not return",
		Long: `remove removes a host's record and its resource provider. A host that is alive or has
instances is only removed with --force: then its instances are lost. Their claims are
released at once; their names and the records to recreate them are kept until "schedule
recreate" or "schedule remove" is run on them. "schedule list --all --state lost" lists
them. If the host returns, it starts none of them, and keeps their disks until "croft
host leftover remove". Restart an agent that still runs to offer its host again.

If the host serves etcd, its member is removed. A host is not removed, even with --force,
if the other etcd members would have no quorum without it: first bring another one back,
or let one join with --etcd-member.`,
		ValidArgsFunction: args.CompleteHosts,
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			h, err := c.ForgetHost(ctx, api.HostRemoval{HostNamed: api.HostNamed{ID: c.Args[0]}, Force: force})
			if err == nil {
				err = c.Report(hostData{h.Host, h.State}, "host %s is removed", plain.Line(h.Name))
			}
			tellLost(c.Cmd.ErrOrStderr(), h.Lost)
			return err
		}),
	}
	cmd.Flags().BoolVar(&force, "force", false, "remove it although it is alive or has instances, and mark those as lost")
	return cmd
}

// tellLost prints the instances that were lost with a host, and where each was recreated.
func tellLost(w io.Writer, lost []hosts.LostInstance) {
	stays := false
	for _, l := range lost {
		what := fmt.Sprintf("instance %s of project %s", plain.Line(l.Name), plain.Line(string(l.Project)))
		switch {
		case l.To != "" && l.Kept:
			fmt.Fprintf(w, "%s is recreated on host %s with its disk\n", what, plain.Line(l.ToName))
			continue
		case l.To != "" && l.Backup != "":
			fmt.Fprintf(w, "%s is recreated on host %s from its backup %s: what was written after that is lost\n", what,
				plain.Line(l.ToName), plain.Line(l.Backup))
			continue
		case l.To != "":
			fmt.Fprintf(w, "%s is recreated on host %s without the data of %s\n", what, plain.Line(l.ToName),
				plain.Line(l.Lacks))
			continue
		case l.Kept:
			fmt.Fprintf(w, "%s is lost, and its disk is on shared storage: %s\n", what,
				plain.Line(cmp.Or(l.Stays, "recreate it")))
		case l.Stays != "":
			fmt.Fprintf(w, "%s is lost, with %s: %s\n", what, plain.Line(l.Lacks), plain.Line(l.Stays))
		default:
			fmt.Fprintf(w, "%s is lost, with %s\n", what, plain.Line(l.Lacks))
		}
		if l.Backup != "" {
			fmt.Fprintf(w, "  its last backup is %[1]s: `croft backup restore %[1]s --in-place --project %[2]s` restores "+
				"it\n", plain.Line(l.Backup), plain.Line(string(l.Project)))
		}
		stays = true
	}
	if stays {
		fmt.Fprintln(w, "`schedule recreate` recreates a lost instance on another host, with an empty disk unless that "+
			"is on shared storage; `schedule remove` gives it up; `schedule list --all --state lost` lists all")
	}
}
