package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/out"
	poolclient "croft/pool/api"
)

// ticketCommand asks pools for resources.
func ticketCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ticket",
		Short: "Ask a pool for a resource, and give it back",
		Long: `A ticket is the right to one resource of a pool, such as a virtual machine that
runs already: open one, wait until it has its resource, use that, close it.

  t=$(croft ticket open --tag x86_64)
  address=$(croft ticket wait $t)
  ssh root@$address make check
  croft ticket close $t

Exit codes: 0 done, 1 failure, 2 wrong usage, 3 there is no such ticket, 4 nothing can
ever serve it as the pools are now, 5 it has ended, 6 it waits still, or the manager
does not answer.`,
		Args: args.OnlySubcommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	addPoolClientFlags(cmd)
	cmd.AddCommand(ticketOpenCommand(), ticketCheckCommand(), ticketWaitCommand(), ticketCloseCommand(), ticketRenewCommand(), ticketListCommand())
	return cmd
}

func ticketOpenCommand() *cobra.Command {
	var o poolclient.Opening
	var ttl, timeout time.Duration
	var wait bool
	cmd := &cobra.Command{
		Use:   "open --tag TAG...",
		Short: "Open a ticket and print its number",
		Long: `open prints the number of a ticket for a resource that has all of the tags. With
--wait it waits for the resource and prints what the pool hands out, such as an
address, below the number; where that does not come in time (--timeout), or nothing
can ever serve the ticket, it closes the ticket again.

With --ttl the ticket is closed once nobody asked about it, waited for it or renewed
it for so long, so that a client that dies keeps nothing.`,
		Args: args.Count(0, 0),
	}
	cmd.Flags().StringArrayVar(&o.Tags, "tag", nil, "a `word` that the resource has to have; give it several times for several")
	cmd.Flags().StringVar(&o.Sandbox, "sandbox", "", "take a resource that was used under this `name` before, or never; none was used under another")
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "close the ticket when it is not used for this `duration`")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait for the resource")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "wait no longer than this `duration`")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if len(o.Tags) == 0 {
			return croft.Errorf(croft.Invalid, "say with --tag what the resource has to be")
		}
		if cmd.Flags().Changed("timeout") && !wait {
			return croft.Errorf(croft.Invalid, "--timeout says how long --wait waits: add --wait")
		}
		o.TTL = poolclient.Seconds(ttl)
		return askPools(cmd, func(ctx context.Context, c *poolclient.Client, output string) error {
			t, err := c.Open(ctx, o)
			if err != nil {
				return err
			}
			if !wait {
				return printTicket(cmd.OutOrStdout(), output, t, strconv.FormatInt(t.ID, 10)+"\n")
			}
			return openAndWait(ctx, cmd, c, t, output, timeout)
		})
	}
	return cmd
}

// openAndWait waits for a ticket that was opened, and closes it where that is in vain.
func openAndWait(ctx context.Context, cmd *cobra.Command, c *poolclient.Client, t poolclient.Ticket, output string, timeout time.Duration) error {
	if output == out.FormatText {
		fmt.Fprintln(cmd.OutOrStdout(), t.ID)
	}
	t, err := waitForTicket(ctx, cmd.ErrOrStderr(), c, t.ID, timeout)
	if err == nil {
		return printTicket(cmd.OutOrStdout(), output, t, dataOf(t))
	}
	if t.State != poolclient.TicketOpen && t.State != "" {
		return err
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), args.AnswerTimeout)
	defer cancel()
	if _, closed := c.Close(closing, t.ID); closed != nil {
		return errors.Join(err, fmt.Errorf("close ticket %d: %w", t.ID, closed))
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "ticket %d is closed\n", t.ID)
	return err
}

// waitForTicket waits until a ticket has its resource, for ever where timeout is 0, and
// says meanwhile what for. NoCapacity: nothing can ever serve it. Conflict: it ended.
// Unavailable: it took too long.
func waitForTicket(ctx context.Context, stderr io.Writer, c *poolclient.Client, id int64, timeout time.Duration) (poolclient.Ticket, error) {
	waiting := ctx
	if timeout > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	last := poolclient.Ticket{ID: id}
	t, err := c.Wait(waiting, id, poolclient.Waiting{Changed: func(t poolclient.Ticket) {
		if t.WaitsFor != last.WaitsFor {
			fmt.Fprintf(stderr, "ticket %d waits: %s\n", id, t.WaitsFor)
		}
		last = t
	}})
	if err == nil {
		return t, ticketError(t)
	}
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		err = croft.Errorf(croft.Unavailable, "ticket %d waits still, after %s: %s", id, timeout, last.WaitsFor)
	}
	return last, err
}

// ticketError says why an open ticket is of no use, or that one has ended; nil where it
// has its resource.
func ticketError(t poolclient.Ticket) error {
	switch {
	case t.Ready():
		return nil
	case t.Waiting() && t.Never:
		return croft.Errorf(croft.NoCapacity, "ticket %d waits in vain: %s", t.ID, t.WaitsFor)
	case t.Waiting():
		return croft.Errorf(croft.Unavailable, "ticket %d waits still: %s", t.ID, t.WaitsFor)
	case t.State == poolclient.TicketFailed:
		return croft.Errorf(croft.Conflict, "ticket %d failed: %s", t.ID, t.Reason)
	case t.Reason != "":
		return croft.Errorf(croft.Conflict, "ticket %d is closed: %s", t.ID, t.Reason)
	}
	return croft.Errorf(croft.Conflict, "ticket %d is closed", t.ID)
}

// dataOf is what a ticket's resource hands out, as a line.
func dataOf(t poolclient.Ticket) string {
	if t.Resource == nil {
		return ""
	}
	data := string(t.Resource.Data)
	if data != "" && !strings.HasSuffix(data, "\n") {
		data += "\n"
	}
	return data
}

func printTicket(w io.Writer, output string, t poolclient.Ticket, text string) error {
	switch output {
	case out.FormatJSON, out.FormatYAML:
		return out.PrintData(w, output, t)
	case out.FormatTable, out.FormatWide:
		return ticketTable([]poolclient.Ticket{t}).Print(w)
	}
	_, err := io.WriteString(w, text)
	return err
}

// oneTicket is a command about the ticket that its argument names.
func oneTicket(use, short, long string, do func(ctx context.Context, cmd *cobra.Command, c *poolclient.Client, id int64, output string) error) *cobra.Command {
	return &cobra.Command{
		Use: use + " TICKET", Short: short, Long: long,
		Args:              args.Count(1, 1),
		ValidArgsFunction: completeTickets,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := ticketNumber(args[0])
			if err != nil {
				return err
			}
			return askPools(cmd, func(ctx context.Context, c *poolclient.Client, output string) error {
				return do(ctx, cmd, c, id, output)
			})
		},
	}
}

func ticketNumber(text string) (int64, error) {
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 1 {
		return 0, croft.Errorf(croft.Invalid, "%q is no number of a ticket: those count from 1", text)
	}
	return id, nil
}

func ticketCheckCommand() *cobra.Command {
	return oneTicket("check", "Say whether a ticket has its resource", `check prints what the ticket's resource hands out, also where the ticket has ended, and
ends with 0 where the ticket has its resource, 6 where it waits, 4 where it waits in
vain, 5 where it has ended.`,
		func(ctx context.Context, cmd *cobra.Command, c *poolclient.Client, id int64, output string) error {
			t, err := c.Ticket(ctx, id)
			if err != nil {
				return err
			}
			return errors.Join(printTicket(cmd.OutOrStdout(), output, t, dataOf(t)), ticketError(t))
		})
}

func ticketWaitCommand() *cobra.Command {
	var timeout time.Duration
	cmd := oneTicket("wait", "Wait until a ticket has its resource, and print what that hands out", `wait prints what the pool hands out, such as an address, once the ticket has its
resource. It outlasts restarts of the manager. With --timeout it waits no longer than
that and ends with 6; the ticket stays open.`,
		func(ctx context.Context, cmd *cobra.Command, c *poolclient.Client, id int64, output string) error {
			t, err := waitForTicket(ctx, cmd.ErrOrStderr(), c, id, timeout)
			if err != nil {
				return err
			}
			return printTicket(cmd.OutOrStdout(), output, t, dataOf(t))
		})
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "wait no longer than this `duration`")
	return cmd
}

func ticketCloseCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "close TICKET...",
		Short: "Give the resources of tickets back",
		Long: `close gives the resource of each ticket back, or cancels a ticket that waits. Closing
one that is closed is no error.`,
		Args:              args.Count(1, -1),
		ValidArgsFunction: completeTickets,
		RunE: func(cmd *cobra.Command, args []string) error {
			var ids []int64
			for _, arg := range args {
				id, err := ticketNumber(arg)
				if err != nil {
					return err
				}
				ids = append(ids, id)
			}
			return askPools(cmd, func(ctx context.Context, c *poolclient.Client, _ string) error {
				var errs []error
				for _, id := range ids {
					_, err := c.Close(ctx, id)
					errs = append(errs, err)
				}
				return errors.Join(errs...)
			})
		},
	}
}

func ticketRenewCommand() *cobra.Command {
	return oneTicket("renew", "Say that a ticket with a lease is used still", `renew begins the lease of a ticket that was opened with --ttl, or of a pool that gives
tickets one, anew and prints when it would end.`,
		func(ctx context.Context, cmd *cobra.Command, c *poolclient.Client, id int64, output string) error {
			t, err := c.Renew(ctx, id)
			if err != nil {
				return err
			}
			return printTicket(cmd.OutOrStdout(), output, t, t.Expires.Local().Format(time.DateTime)+"\n")
		})
}

func ticketListCommand() *cobra.Command {
	var all bool
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the tickets",
		Args:  args.Count(0, 0),
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "list closed tickets too, as far as they are remembered")
	cmd.Flags().IntVar(&limit, "limit", 0, "list the newest so many alone (`number`)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return askPools(cmd, func(ctx context.Context, c *poolclient.Client, output string) error {
			list, err := c.Tickets(ctx, all, limit)
			if err != nil {
				return err
			}
			if output == out.FormatJSON || output == out.FormatYAML {
				return out.PrintData(cmd.OutOrStdout(), output, list.Tickets)
			}
			t := ticketTable(list.Tickets)
			t.Color = out.IsColored(cmd.OutOrStdout())
			return t.Print(cmd.OutOrStdout())
		})
	}
	return cmd
}

func ticketTable(all []poolclient.Ticket) *out.Table {
	t := &out.Table{}
	t.Head("TICKET", "STATE", "TAGS", "OPENED", "RESOURCE", "NOTE")
	for _, one := range all {
		name := "-"
		if one.Resource != nil {
			name = one.Resource.Name
		}
		note := one.WaitsFor
		if one.State != poolclient.TicketOpen {
			note = one.Reason
		}
		t.Row(out.Cell{Text: strconv.FormatInt(one.ID, 10)}, ticketState(one), out.Cell{Text: strings.Join(one.Tags, ",")},
			out.Cell{Text: one.Opened.Local().Format(time.DateTime)}, out.Cell{Text: name}, out.Cell{Text: note})
	}
	return t
}

// ticketState says in a word how far a ticket got.
func ticketState(t poolclient.Ticket) out.Cell {
	switch {
	case t.Waiting() && t.Never:
		return out.Cell{Text: "never", Color: out.Red}
	case t.Waiting():
		return out.Cell{Text: "waiting", Color: out.Yellow}
	case t.Ready():
		return out.Cell{Text: "ready", Color: out.Green}
	case t.State == poolclient.TicketFailed:
		return out.Cell{Text: "failed", Color: out.Red}
	}
	return out.Cell{Text: "closed"}
}

// completeTickets completes numbers of open tickets.
func completeTickets(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return completePools(cmd, args, prefix, func(ctx context.Context, c *poolclient.Client) (all []string, err error) {
		list, err := c.Tickets(ctx, false, 0)
		for _, t := range list.Tickets {
			all = append(all, cobra.CompletionWithDesc(strconv.FormatInt(t.ID, 10), ticketState(t).Text+" "+strings.Join(t.Tags, ",")))
		}
		return all, err
	})
}

// completePools completes with those of all that begin so and are no arguments yet.
func completePools(cmd *cobra.Command, given []string, prefix string, list func(context.Context, *poolclient.Client) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), args.CompletionTimeout)
	defer cancel()
	var found []string
	_ = askPools(cmd, func(_ context.Context, c *poolclient.Client, _ string) error {
		all, err := list(ctx, c)
		for _, one := range all {
			name, _, _ := strings.Cut(one, "\t")
			if strings.HasPrefix(name, prefix) && !strings.Contains("\t"+strings.Join(given, "\t")+"\t", "\t"+name+"\t") {
				found = append(found, one)
			}
		}
		return err
	})
	return found, cobra.ShellCompDirectiveNoFileComp
}
