package resalloc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/internal/command"
	"croft/pool/api"
)

// clientPatience is how long resalloc retries a server that does not answer.
const clientPatience = 10 * time.Second

// verb is the part of a command that calls the server.
type verb func(ctx context.Context, cmd *cobra.Command, c *api.Client, given []string) error

func clientCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "resalloc",
		Short: "The client of resalloc, for pools of croft",
		Args:  command.OnlySubcommands,
		RunE: func(*cobra.Command, []string) error {
			return croft.Errorf(croft.Invalid, "say what to do: ticket, ticket-check, ticket-wait or ticket-close")
		},
	}
	at := cmd.PersistentFlags().String("connection", "http://localhost:49100", "`URL` of the server")
	// ask sets the RunE of a command that calls the server; every error there has exit code 1.
	ask := func(cmd *cobra.Command, do verb) *cobra.Command {
		cmd.RunE = func(cmd *cobra.Command, given []string) error {
			s, err := args.LoadSettings(cmd.Flags())
			if err != nil {
				return err
			}
			s.Pool.Endpoints = []string{*at}
			c, err := s.Pool.ClientFor(clientPatience)
			if err != nil {
				return err
			}
			defer c.CloseIdle()
			return failed(do(cmd.Context(), cmd, c, given))
		}
		return cmd
	}
	cmd.PersistentFlags().String("settings", "", "read settings from this `file` instead of searching schedule.yaml")
	cmd.AddCommand(
		ask(ticketCommand()),
		ask(&cobra.Command{
			Use: "ticket-check TICKET", Short: "Print what a ticket's resource hands out; 0 where it has one",
			Args: command.Count(1, 1),
		}, ticketCheck),
		ask(&cobra.Command{
			Use: "ticket-wait TICKET", Short: "Wait until a ticket has its resource and print what that hands out",
			Args: ticketArgs,
		}, ticketWait),
		ask(&cobra.Command{Use: "ticket-close TICKET", Short: "Give a ticket back", Args: ticketArgs}, ticketClose),
	)
	return cmd
}

func ticketArgs(cmd *cobra.Command, given []string) error {
	if err := command.Count(1, 1)(cmd, given); err != nil {
		return err
	}
	_, err := api.ParseTicketID(given[0])
	return err
}

func ticketCommand() (*cobra.Command, verb) {
	var o api.Opening
	cmd := &cobra.Command{Use: "ticket --tag TAG...", Short: "Open a ticket and print its number"}
	cmd.Args = func(cmd *cobra.Command, given []string) error {
		if len(o.Tags) == 0 {
			return croft.Errorf(croft.Invalid, "name with --tag what the resource must have")
		}
		return command.Count(0, 0)(cmd, given)
	}
	cmd.Flags().StringArrayVar(&o.Tags, "tag", nil, "a `tag` that the resource must have")
	cmd.Flags().StringVar(&o.Sandbox, "sandbox", "", "take a resource that was used under this `name` before, or never")
	return cmd, func(ctx context.Context, cmd *cobra.Command, c *api.Client, _ []string) error {
		t, err := c.Open(ctx, o)
		if err == nil {
			_, err = fmt.Fprintln(cmd.OutOrStdout(), t.ID)
		}
		return err
	}
}

// ticketCheck prints the data of a ticket's resource, even after the ticket ended. It succeeds only for an open ticket
// with a resource. A word that is not a number is treated as an unknown ticket.
func ticketCheck(ctx context.Context, cmd *cobra.Command, c *api.Client, given []string) error {
	id, _ := strconv.ParseInt(given[0], 10, 64)
	t, err := c.Ticket(ctx, id)
	stderr := cmd.ErrOrStderr()
	if err != nil && !errors.Is(err, croft.NotFound) && !errors.Is(err, croft.Invalid) {
		return err
	}
	switch {
	case err != nil:
		fmt.Fprintln(stderr, "WARNING: non-existing ticket")
	case t.State == api.TicketClosed:
		fmt.Fprintln(stderr, "WARNING: already closed ticket")
	case t.State == api.TicketFailed:
		fmt.Fprintln(stderr, "WARNING: assigned resource failed")
	}
	if err != nil || t.Served.IsZero() {
		fmt.Fprintln(stderr, "ticket is still not processed")
		return &command.Exited{Code: 1}
	}
	if err := printRaw(cmd.OutOrStdout(), t); err != nil {
		return err
	}
	if !t.Ready() {
		return &command.Exited{Code: 1}
	}
	return nil
}

// printRaw prints the data of a ticket's resource, unchanged.
func printRaw(w io.Writer, t api.Ticket) error {
	if t.Resource == nil {
		return nil
	}
	_, err := w.Write(t.Resource.Data)
	return err
}

// ticketWait waits without limit, even if no pool can serve the ticket now, because the caller may be about to change
// the pools. It prints a warning in that case.
func ticketWait(ctx context.Context, cmd *cobra.Command, c *api.Client, args []string) error {
	id, _ := api.ParseTicketID(args[0]) // already checked
	warned := false
	t, err := c.Wait(ctx, id, api.Waiting{Never: true, Changed: func(t api.Ticket) {
		if t.Never && !warned {
			fmt.Fprintf(cmd.ErrOrStderr(), "WARNING: ticket %d waits in vain as the pools are now: %s\n", id,
				t.WaitsFor)
			warned = true
		}
	}})
	if err != nil {
		return err
	}
	if t.Served.IsZero() {
		return t.Err()
	}
	return printRaw(cmd.OutOrStdout(), t)
}

func ticketClose(ctx context.Context, _ *cobra.Command, c *api.Client, args []string) error {
	id, _ := api.ParseTicketID(args[0]) // already checked
	_, err := c.Close(ctx, id)
	return err
}
