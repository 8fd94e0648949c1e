package main

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
	poolclient "croft/pool/api"
)

// resallocNames are the programs of resalloc that the binary is, by its name.
var resallocNames = []string{"resalloc", "resalloc-maint", "resalloc-server", "resalloc-check-vm-ip", "resalloc-wait-for-ssh"}

// resallocCommand is the program of resalloc with this name, nil where there is none:
// what its callers rely on is as they know it, verbs, flags, output and exit codes.
func resallocCommand(name string) *cobra.Command {
	switch name {
	case "resalloc":
		return resallocClientCommand()
	case "resalloc-maint":
		return resallocMaintCommand()
	case "resalloc-server":
		return resallocServerCommand()
	case "resalloc-check-vm-ip":
		return resallocCheckCommand()
	case "resalloc-wait-for-ssh":
		return resallocWaitCommand()
	}
	return nil
}

// resallocVersion is the form of what --version prints: the client says that it is one.
func resallocVersion(name string) string {
	if name == "resalloc" {
		name += " (client)"
	}
	return name + " {{.Version}}\n"
}

// resallocPatience is how long resalloc goes on asking a server that does not answer.
const resallocPatience = 10 * time.Second

func resallocClientCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "resalloc",
		Short: "The client of resalloc, for pools of croft",
		Args:  args.OnlySubcommands,
		RunE: func(*cobra.Command, []string) error {
			return croft.Errorf(croft.Invalid, "say what to do: ticket, ticket-check, ticket-wait or ticket-close")
		},
	}
	at := cmd.PersistentFlags().String("connection", "http://localhost:49100", "`URL` of the server")
	// ask makes a command whose RunE asks the server; all that goes wrong there is 1.
	ask := func(cmd *cobra.Command, do func(ctx context.Context, cmd *cobra.Command, c *poolclient.Client, args []string) error) *cobra.Command {
		cmd.RunE = func(cmd *cobra.Command, given []string) error {
			s, err := args.LoadSettings(cmd.Flags())
			if err != nil {
				return err
			}
			s.Pool.Endpoints = []string{*at}
			c, err := s.Pool.ClientFor(resallocPatience)
			if err != nil {
				return err
			}
			defer c.CloseIdle()
			return failedAs(cmd, 1, do(cmd.Context(), cmd, c, given))
		}
		return cmd
	}
	cmd.PersistentFlags().String("settings", "", "read settings from this `file` instead of searching schedule.yaml")
	cmd.AddCommand(
		ask(resallocTicketCommand()),
		ask(&cobra.Command{Use: "ticket-check TICKET", Short: "Print what a ticket's resource hands out; 0 where it has one", Args: args.Count(1, 1)}, resallocCheck),
		ask(&cobra.Command{Use: "ticket-wait TICKET", Short: "Wait until a ticket has its resource and print what that hands out", Args: ticketArgs}, resallocWait),
		ask(&cobra.Command{Use: "ticket-close TICKET", Short: "Give a ticket back", Args: ticketArgs}, resallocClose),
	)
	return cmd
}

// failedAs says what went wrong and ends the process with a code.
func failedAs(cmd *cobra.Command, code int, err error) error {
	if err == nil {
		return nil
	}
	if _, told := errors.AsType[*args.Exited](err); told {
		return err
	}
	report(cmd.ErrOrStderr(), err)
	return &args.Exited{Code: code}
}

func ticketArgs(cmd *cobra.Command, given []string) error {
	if err := args.Count(1, 1)(cmd, given); err != nil {
		return err
	}
	_, err := ticketNumber(given[0])
	return err
}

func resallocTicketCommand() (*cobra.Command, func(context.Context, *cobra.Command, *poolclient.Client, []string) error) {
	var o poolclient.Opening
	cmd := &cobra.Command{Use: "ticket --tag TAG...", Short: "Open a ticket and print its number"}
	cmd.Args = func(cmd *cobra.Command, given []string) error {
		if len(o.Tags) == 0 {
			return croft.Errorf(croft.Invalid, "say with --tag what the resource has to be")
		}
		return args.Count(0, 0)(cmd, given)
	}
	cmd.Flags().StringArrayVar(&o.Tags, "tag", nil, "a `word` that the resource has to have")
	cmd.Flags().StringVar(&o.Sandbox, "sandbox", "", "take a resource that was used under this `name` before, or never")
	return cmd, func(ctx context.Context, cmd *cobra.Command, c *poolclient.Client, _ []string) error {
		t, err := c.Open(ctx, o)
		if err == nil {
			_, err = fmt.Fprintln(cmd.OutOrStdout(), t.ID)
		}
		return err
	}
}

// resallocCheck prints what a ticket's resource hands out also where the ticket has
// ended, but only one that is open and has its resource is a success. What is no number
// is that of no ticket.
func resallocCheck(ctx context.Context, cmd *cobra.Command, c *poolclient.Client, given []string) error {
	id, _ := strconv.ParseInt(given[0], 10, 64)
	t, err := c.Ticket(ctx, id)
	stderr := cmd.ErrOrStderr()
	if err != nil && !errors.Is(err, croft.NotFound) && !errors.Is(err, croft.Invalid) {
		return err
	}
	switch {
	case err != nil:
		fmt.Fprintln(stderr, "WARNING: non-existing ticket")
	case t.State == poolclient.TicketClosed:
		fmt.Fprintln(stderr, "WARNING: already closed ticket")
	case t.State == poolclient.TicketFailed:
		fmt.Fprintln(stderr, "WARNING: assigned resource failed")
	}
	if err != nil || t.Served.IsZero() {
		fmt.Fprintln(stderr, "ticket is still not processed")
		return &args.Exited{Code: 1}
	}
	if err := printRaw(cmd.OutOrStdout(), t); err != nil {
		return err
	}
	if !t.Ready() {
		return &args.Exited{Code: 1}
	}
	return nil
}

// printRaw prints the bytes of what a ticket's resource hands out.
func printRaw(w io.Writer, t poolclient.Ticket) error {
	if t.Resource == nil {
		return nil
	}
	_, err := w.Write(t.Resource.Data)
	return err
}

// resallocWait waits for ever, also where nothing can serve the ticket now: who called
// it may be about to change the pools. It says so.
func resallocWait(ctx context.Context, cmd *cobra.Command, c *poolclient.Client, args []string) error {
	id, _ := ticketNumber(args[0]) // was checked
	told := false
	t, err := c.Wait(ctx, id, poolclient.Waiting{Never: true, Changed: func(t poolclient.Ticket) {
		if t.Never && !told {
			fmt.Fprintf(cmd.ErrOrStderr(), "WARNING: ticket %d waits in vain as the pools are now: %s\n", id, t.WaitsFor)
			told = true
		}
	}})
	if err != nil {
		return err
	}
	if t.Served.IsZero() {
		return ticketError(t)
	}
	return printRaw(cmd.OutOrStdout(), t)
}

func resallocClose(ctx context.Context, _ *cobra.Command, c *poolclient.Client, args []string) error {
	id, _ := ticketNumber(args[0]) // was checked
	_, err := c.Close(ctx, id)
	return err
}
