package resalloc

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"croft"
	"croft/internal/command"
	"croft/pool/api"
)

// maintVerb is the action of a command of resalloc-maint.
type maintVerb func(ctx context.Context, cmd *cobra.Command, m maintainer, args []string) error

// asks makes a verb from a function that makes a single call to the server, and does nothing else that may take long.
func asks(do func(ctx context.Context, cmd *cobra.Command, c *api.Client, args []string) error) maintVerb {
	return func(ctx context.Context, cmd *cobra.Command, m maintainer, args []string) error {
		return m.ask(ctx, func(c *api.Client) error { return do(ctx, cmd, c, args) })
	}
}

func maintCommand(b Backend) *cobra.Command {
	maint := func(cmd *cobra.Command, do maintVerb) *cobra.Command { return maint(cmd, b, do) }
	cmd := &cobra.Command{
		Use:   "resalloc-maint",
		Short: "The maintainer's tool of resalloc, for pools of croft",
		Long: `resalloc-maint asks the server of $CONFIG_DIR/server.yaml, /etc/resallocserver by default.
Where that needs a token, CROFT_POOL_TOKEN has it. While no server runs it opens the
server's state itself: lists tell what was, and what is deleted then is deleted when the
server starts.`,
		Args: command.OnlySubcommands,
		RunE: func(*cobra.Command, []string) error {
			return croft.Errorf(croft.Invalid,
				"say what to do: resource-list, resource-info, resource-delete, resource-logs, "+
					"ticket-list or foreach-resource")
		},
	}
	cmd.AddCommand(maintListCommand(b), maintDeleteCommand(b), maintForeachCommand(b),
		maint(&cobra.Command{
			Use: "resource-info ID|NAME", Short: "Print a resource as JSON", Args: command.Count(1, 1),
		}, asks(maintInfo)),
		maint(&cobra.Command{
			Use: "resource-logs ID|NAME...", Short: "Print and follow the logs of resources",
			Args: command.Count(1, -1),
		}, maintLogs),
		maint(&cobra.Command{
			Use: "ticket-list", Short: "List the tickets that are not closed", Args: command.Count(0, 0),
		}, asks(maintTickets)),
	)
	return cmd
}

// maint sets the RunE of a command; every error there has exit code 1.
func maint(cmd *cobra.Command, b Backend, do maintVerb) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		server, pools, err := readServerYAML()
		if err == nil {
			err = do(cmd.Context(), cmd, maintainer{server, pools, b}, args)
		}
		return failed(err)
	}
	return cmd
}

func maintListCommand(b Backend) *cobra.Command {
	var up bool
	cmd := maint(&cobra.Command{Use: "resource-list", Short: "List the resources", Args: command.Count(0, 0)}, b,
		asks(func(ctx context.Context, cmd *cobra.Command, c *api.Client, _ []string) error {
			all, err := c.Resources(ctx, "", false)
			for _, r := range all {
				if !up || r.State == "UP" {
					fmt.Fprintln(cmd.OutOrStdout(), maintResource(r))
				}
			}
			return err
		}))
	cmd.Flags().BoolVar(&up, "up", false, "list only those in state UP")
	return cmd
}

func maintResource(r api.Resource) string {
	ticket := "NULL"
	if r.Ticket != 0 {
		ticket = strconv.FormatInt(r.Ticket, 10)
	}
	var tags []string
	for _, t := range r.Tags {
		tags = append(tags, t.Name)
	}
	return fmt.Sprintf("%d - %s pool=%s tags=%s status=%s releases=%d ticket=%s",
		r.ID, r.Name, r.Pool, strings.Join(tags, ","), r.State, r.Releases, ticket)
}

func maintTickets(ctx context.Context, cmd *cobra.Command, c *api.Client, _ []string) error {
	list, err := c.Tickets(ctx, api.Selection{})
	for _, t := range list.Tickets {
		line := fmt.Sprintf("%d - state=%s tags=%s", t.ID, t.State, strings.Join(t.Tags, ","))
		if t.Resource != nil {
			line += " resource=" + t.Resource.Name
		}
		fmt.Fprintln(cmd.OutOrStdout(), line)
	}
	return err
}

// maintRow is a resource in the form of resalloc's database.
type maintRow struct {
	ID              int64    `json:"id"`
	Name            string   `json:"name"`
	User            *string  `json:"user"` // never set
	Data            string   `json:"data"`
	Pool            string   `json:"pool"`
	State           string   `json:"state"`
	CheckLastTime   float64  `json:"check_last_time"`
	CheckFailed     int      `json:"check_failed_count"`
	TicketID        *int64   `json:"ticket_id"`
	Sandbox         *string  `json:"sandbox"`
	SandboxedSince  *float64 `json:"sandboxed_since"`
	ReleasedAt      *float64 `json:"released_at"`
	ReleasesCounter int      `json:"releases_counter"`
}

func maintInfo(ctx context.Context, cmd *cobra.Command, c *api.Client, args []string) error {
	r, err := c.Resource(ctx, args[0])
	if err != nil {
		return err
	}
	row := maintRow{
		ID: r.ID, Name: r.Name, Data: string(r.Data), Pool: r.Pool, State: r.State, CheckFailed: r.Failures,
		Sandbox: known(r.Sandbox), TicketID: known(r.Ticket), ReleasesCounter: r.Releases,
		SandboxedSince: known(epoch(r.Sandboxed)), ReleasedAt: known(epoch(r.Released)),
		CheckLastTime: epoch(cmp.Or(r.Checked, r.Created)),
	}
	document := json.NewEncoder(cmd.OutOrStdout())
	document.SetIndent("", "    ")
	document.SetEscapeHTML(false) // a search of the output for <name> must find it
	return document.Encode(row)
}

// known returns a pointer to a value; nil: the zero value.
func known[T comparable](v T) *T {
	var none T
	if v == none {
		return nil
	}
	return &v
}

// epoch returns a time as seconds since 1970, 0 for the zero time.
func epoch(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMicro()) / 1e6
}

func maintDeleteCommand(b Backend) *cobra.Command {
	var all, unused bool
	cmd := &cobra.Command{Use: "resource-delete ID|NAME... | --all | --unused", Short: "Have resources deleted"}
	cmd.Args = func(_ *cobra.Command, _ []string) error {
		if all && unused {
			return croft.Errorf(croft.Invalid, "--all and --unused do not go together")
		}
		return nil
	}
	cmd.Flags().BoolVar(&all, "all", false, "delete all that are up")
	cmd.Flags().BoolVar(&unused, "unused", false, "delete all that are up and not handed out")
	return maint(cmd, b, func(ctx context.Context, cmd *cobra.Command, m maintainer, args []string) error {
		if len(args) == 0 && !all && !unused {
			fmt.Fprintln(cmd.ErrOrStderr(), "no resources specified")
			return nil
		}
		return m.ask(ctx, func(c *api.Client) error { return maintDelete(ctx, cmd, c, which(all, unused), args) })
	})
}

// maintDelete deletes each resource separately: a missing one does not stop the others.
func maintDelete(ctx context.Context, cmd *cobra.Command, c *api.Client, which string, names []string) error {
	if _, err := c.Delete(ctx, which); err != nil {
		return err
	}
	for _, name := range names {
		_, err := c.Delete(ctx, "none", name)
		if errors.Is(err, croft.NotFound) {
			fmt.Fprintln(cmd.ErrOrStderr(), "WARNING:", err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// maintLogs follows the logs of resources, including logs that do not exist yet, until it is interrupted.
func maintLogs(ctx context.Context, cmd *cobra.Command, m maintainer, args []string) error {
	tail := []string{"-F", "-n+0"}
	for _, name := range args {
		id, err := m.number(ctx, name)
		if err != nil {
			return err
		}
		for _, kind := range []string{"alloc", "watch", "terminate"} {
			tail = append(tail, filepath.Join(m.LogDir, "hooks", fmt.Sprintf("%06d_%s", id, kind)))
		}
	}
	return runHere(ctx, cmd, exec.CommandContext(ctx, "tail", tail...))
}

// number returns the number of a resource. It calls the server only if idOrName is a name.
func (m maintainer) number(ctx context.Context, name string) (id int64, err error) {
	if id, err := strconv.ParseInt(name, 10, 64); err == nil {
		return id, nil
	}
	err = m.ask(ctx, func(c *api.Client) error {
		r, err := c.Resource(ctx, name)
		id = r.ID
		return err
	})
	return id, err
}

// runHere runs a program with our input and output.
func runHere(ctx context.Context, cmd *cobra.Command, program *exec.Cmd) error {
	program.Stdin, program.Stdout, program.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	err := program.Run()
	if ctx.Err() != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), "\nInterrupted by user.")
		return &command.Exited{Code: 1}
	}
	return err
}

func maintForeachCommand(b Backend) *cobra.Command {
	var line string
	cmd := maint(&cobra.Command{
		Use:   "foreach-resource",
		Short: "Run a shell command for each resource",
		Long: `foreach-resource runs a shell command for each resource, with {name}, {state} and
{data_utf8} in it replaced as they are, without quotes around them.`,
		Args: command.Count(0, 0),
	}, b, func(ctx context.Context, cmd *cobra.Command, m maintainer, _ []string) error {
		var all []api.Resource
		// the call ends before the commands run, because they may call the server too
		err := m.ask(ctx, func(c *api.Client) (err error) {
			all, err = c.Resources(ctx, "", false)
			return err
		})
		if err != nil {
			return err
		}
		slices.SortFunc(all, func(a, b api.Resource) int { return cmp.Compare(a.ID, b.ID) })
		for _, r := range all {
			if err := foreach(ctx, cmd, line, r); err != nil {
				return err
			}
		}
		return nil
	})
	cmd.Flags().StringVar(&line, "command", "echo {name}", "shell `command`")
	return cmd
}

func foreach(ctx context.Context, cmd *cobra.Command, line string, r api.Resource) error {
	if !utf8.Valid(r.Data) && strings.Contains(line, "{data_utf8}") {
		fmt.Fprintf(cmd.ErrOrStderr(), "WARNING: the data of resource %d is no UTF-8; it is left out\n", r.ID)
		return nil
	}
	fields := strings.NewReplacer("{name}", r.Name, "{state}", r.State, "{data_utf8}", string(r.Data), "{{", "{", "}}",
		"}")
	err := runHere(ctx, cmd, exec.CommandContext(ctx, "/bin/sh", "-c", fields.Replace(line)))
	if _, ended := errors.AsType[*exec.ExitError](err); ended {
		return nil // the command reports its own failure
	}
	return err
}

// which returns the API's word for the flags of resource-delete.
func which(all, unused bool) string {
	switch {
	case all:
		return "all"
	case unused:
		return "unused"
	}
	return "none"
}
