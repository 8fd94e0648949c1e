package pools

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
	"croft/cli/verb"
	"croft/internal/command"
	"croft/internal/out"
	"croft/internal/wording"
	"croft/pool/api"
)

// TicketCommand returns the command croft pool ticket, for users of resources.
func TicketCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ticket",
		Short: "Ask a pool for a resource, and give it back",
		Long: `A ticket is the right to one resource of a pool, such as a running virtual machine: open
a ticket, wait until it has its resource, use that, close the ticket.

  t=$(croft pool ticket open --tag x86_64)
  address=$(croft pool ticket wait $t)
  ssh root@$address make check
  croft pool ticket close $t

Exit codes: 0 done, 1 failure, 2 wrong usage, 3 no such ticket, 4 the current pools can
never serve it, 5 it has ended, 6 it still waits, or the manager does not answer,
7 not permitted.`,
	}
	addFlags(cmd)
	cmd.AddCommand(openCommand(), checkCommand(), waitCommand(), closeCommand(), renewCommand(), listTicketsCommand())
	return cmd
}

func openCommand() *cobra.Command {
	var o api.Opening
	var ttl, timeout time.Duration
	var wait bool
	cmd := &cobra.Command{
		Use:   "open --tag TAG...",
		Short: "Open a ticket and print its number",
		Long: `open prints the number of a ticket for a resource that has all of the tags. With --wait
it waits for the resource and prints what the pool hands out, such as an address, below
the number; if it does not come in time (--timeout), or the pools can never serve the
ticket, it closes the ticket again. With --ttl the ticket is closed after that time
without a check, wait or renewal, so that a client that dies keeps nothing.`,
	}
	cmd.Flags().StringArrayVar(&o.Tags, "tag", nil, "a `tag` that the resource must have; repeat for more")
	cmd.Flags().StringVar(&o.Sandbox, "sandbox", "",
		"take only a resource that was never used, or only under this `name`")
	cmd.Flags().StringVar(&o.Project, "project", "",
		"open it for this `project`, within its quota, from its pools and shared ones; admins may")
	command.DurationVar(cmd.Flags(), &ttl, "ttl", 0, "close the ticket when it is not used for this `duration`")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait for the resource")
	command.DurationVar(cmd.Flags(), &timeout, "timeout", 0, "wait no longer than this `duration`")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if len(o.Tags) == 0 {
			return croft.Errorf(croft.Invalid, "name with --tag what the resource must have")
		}
		if cmd.Flags().Changed("timeout") && !wait {
			return croft.Errorf(croft.Invalid, "--timeout says how long --wait waits: add --wait")
		}
		o.TTL = api.Seconds(ttl)
		return ask(cmd, func(ctx context.Context, c manager, output string) error {
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

// openAndWait waits for a new ticket, and closes it if it gets no resource.
func openAndWait(ctx context.Context, cmd *cobra.Command, c manager, t api.Ticket, output string,
	timeout time.Duration) error {
	if output == out.FormatText {
		fmt.Fprintln(cmd.OutOrStdout(), t.ID)
	}
	t, err := waitForTicket(ctx, cmd.ErrOrStderr(), c, t.ID, timeout)
	if err == nil {
		return printTicket(cmd.OutOrStdout(), output, t, data(t))
	}
	if t.State != api.TicketOpen && t.State != "" {
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

// waitForTicket waits until a ticket has its resource, without limit if timeout is 0, and prints on stderr what it
// waits for. NoCapacity: the ticket can never be served. Conflict: it ended. Unavailable: the time is over.
func waitForTicket(ctx context.Context, stderr io.Writer, c manager, id int64,
	timeout time.Duration) (api.Ticket, error) {
	waiting := ctx
	if timeout > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	last := api.Ticket{ID: id}
	t, err := c.Wait(waiting, id, api.Waiting{Changed: func(t api.Ticket) {
		if t.WaitsFor != last.WaitsFor {
			fmt.Fprintf(stderr, "ticket %d waits: %s\n", id, t.WaitsFor)
		}
		last = t
	}})
	if err == nil {
		return t, t.Err()
	}
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		err = croft.Errorf(croft.Unavailable, "ticket %d still waits, after %s: %s", id, wording.Duration(timeout),
			last.WaitsFor)
	}
	return last, err
}

// data returns the data of a ticket's resource, as a line.
func data(t api.Ticket) string {
	if t.Resource == nil {
		return ""
	}
	data := string(t.Resource.Data)
	if data != "" && !strings.HasSuffix(data, "\n") {
		data += "\n"
	}
	return data
}

func printTicket(w io.Writer, output string, t api.Ticket, text string) error {
	if out.IsData(output) || out.IsTable(output) {
		return printTickets(w, output, t, []api.Ticket{t})
	}
	_, err := io.WriteString(w, text)
	return err
}

// ticketVerb is an operation on one ticket.
type ticketVerb func(ctx context.Context, cmd *cobra.Command, c manager, id int64, output string) error

// oneTicket returns a command for the ticket that its argument names.
func oneTicket(use, short, long string, do ticketVerb) *cobra.Command {
	return &cobra.Command{
		Use: use + " TICKET", Short: short, Long: long,
		ValidArgsFunction: completeTickets,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := api.ParseTicketID(args[0])
			if err != nil {
				return err
			}
			return ask(cmd, func(ctx context.Context, c manager, output string) error {
				return do(ctx, cmd, c, id, output)
			})
		},
	}
}

func checkCommand() *cobra.Command {
	return oneTicket("check", "Check whether a ticket has its resource",
		`check prints what the ticket's resource hands out, even if the ticket has ended, and
exits with 0 if the ticket has its resource, 6 if it waits, 4 if the pools can never
serve it, 5 if it has ended.`,
		func(ctx context.Context, cmd *cobra.Command, c manager, id int64, output string) error {
			t, err := c.Ticket(ctx, id)
			if err != nil {
				return err
			}
			return errors.Join(printTicket(cmd.OutOrStdout(), output, t, data(t)), t.Err())
		})
}

func waitCommand() *cobra.Command {
	var timeout time.Duration
	cmd := oneTicket("wait", "Wait until a ticket has its resource, and print what that hands out",
		`wait prints what the pool hands out, such as an address, once the ticket has its
resource. It outlasts restarts of the manager. With --timeout it waits no longer than
that and ends with 6; the ticket stays open.`,
		func(ctx context.Context, cmd *cobra.Command, c manager, id int64, output string) error {
			t, err := waitForTicket(ctx, cmd.ErrOrStderr(), c, id, timeout)
			if err != nil {
				return err
			}
			return printTicket(cmd.OutOrStdout(), output, t, data(t))
		})
	command.DurationVar(cmd.Flags(), &timeout, "timeout", 0, "wait no longer than this `duration`")
	return cmd
}

func closeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "close TICKET...",
		Short: "Give the resources of tickets back",
		Long: `close gives the resource of each ticket back, or cancels a ticket that waits. Closing
one that is closed is no error.`,
		ValidArgsFunction: completeTickets,
		RunE: func(cmd *cobra.Command, args []string) error {
			ids := map[string]int64{}
			for _, arg := range args {
				id, err := api.ParseTicketID(arg)
				if err != nil {
					return err
				}
				ids[arg] = id
			}
			return ask(cmd, func(ctx context.Context, c manager, _ string) error {
				check := func(arg string) error {
					_, err := c.Ticket(ctx, ids[arg])
					return err
				}
				return verb.Each(args, check, func(arg string) error {
					_, err := c.Close(ctx, ids[arg])
					return err
				})
			})
		},
	}
}

func renewCommand() *cobra.Command {
	return oneTicket("renew", "Renew the lease of a ticket",
		`renew restarts the lease of a ticket that was opened with --ttl, or by a pool that gives
tickets one, and prints when it ends.`,
		func(ctx context.Context, cmd *cobra.Command, c manager, id int64, output string) error {
			t, err := c.Renew(ctx, id)
			if err != nil {
				return err
			}
			return printTicket(cmd.OutOrStdout(), output, t, t.Expires.Local().Format(time.DateTime)+"\n")
		})
}

func listTicketsCommand() *cobra.Command {
	var of api.Selection
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the tickets",
	}
	cmd.Flags().BoolVarP(&of.All, "all", "a", false, "list also the closed tickets that the manager remembers")
	cmd.Flags().IntVar(&of.Limit, "limit", 0, "list only the newest `N` tickets")
	cmd.Flags().StringVar(&of.Project, "project", "", "list the tickets of this `project` alone; admins may")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return ask(cmd, func(ctx context.Context, c manager, output string) error {
			list, err := c.Tickets(ctx, of)
			if err != nil {
				return err
			}
			return printTickets(cmd.OutOrStdout(), output, list.Tickets, list.Tickets)
		})
	}
	return cmd
}

// printTickets prints data for programs, and for people a table of tickets.
func printTickets(w io.Writer, output string, data any, all []api.Ticket) error {
	return out.Print(w, output, data, func(t *out.Table) { ticketRows(t, all) })
}

func ticketRows(t *out.Table, all []api.Ticket) {
	t.Head("TICKET", "STATE", "TAGS", "OPENED", "RESOURCE", "NOTE")
	for _, one := range all {
		name := "-"
		if one.Resource != nil {
			name = one.Resource.Name
		}
		note := one.WaitsFor
		if one.State != api.TicketOpen {
			note = one.Reason
		}
		t.Row(out.Cell{Text: strconv.FormatInt(one.ID, 10)}, ticketCell(one),
			out.Cell{Text: strings.Join(one.Tags, ",")},
			out.Cell{Text: one.Opened.Local().Format(time.DateTime)}, out.Cell{Text: name}, out.Cell{Text: note})
	}
}
