package pools

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/client"
	"croft/control/cloud/direct"
	"croft/internal/out"
	"croft/internal/plain"
	"croft/pool/api"
)

// addFlags defines the flags of commands that call a manager of pools.
func addFlags(cmd *cobra.Command) {
	args.AddContextFlag(cmd.PersistentFlags())
	flags := cmd.PersistentFlags()
	flags.String("settings", "", "read settings from this `file` instead of searching schedule.yaml")
	flags.String("server", "",
		"`URLs` of the managers of pools, separated by commas, instead of the cloud that CROFT_URL names (pool.endpoints)")
	flags.StringP("output", "o", "", "print text, table, json or yaml (`format`; output)")
}

// manager answers requests about pools and tickets: a manager of pools, or a cloud over its API. A ticket is named by
// its number. Unavailable: no manager of pools answers in time.
type manager interface {
	// Pools lists the pools in the order of their file. Stock is nil if the caller may not see it.
	Pools(ctx context.Context) ([]api.Pool, error)
	// Pool returns a pool. NotFound.
	Pool(ctx context.Context, name string) (api.Pool, error)
	// Resize changes the size of a pool. Invalid; NotFound; Conflict; Denied: operators may.
	Resize(ctx context.Context, name string, size api.Size) (api.Pool, error)
	// Resources lists resources by number, of one pool if it is named; without all, only resources that have not ended.
	Resources(ctx context.Context, pool string, all bool) ([]api.Resource, error)
	// Resource returns a resource by its number or name. NotFound.
	Resource(ctx context.Context, idOrName string) (api.Resource, error)
	// Logs returns the output of a resource's commands. NotFound.
	Logs(ctx context.Context, idOrName string) ([]byte, error)
	// Open opens a ticket. The same key returns the same ticket, so a caller who does not know whether a ticket was
	// opened can ask again with the same key. OverQuota; Invalid.
	Open(ctx context.Context, o api.Opening) (api.Ticket, error)
	// Ticket returns a ticket, and restarts its lease. NotFound.
	Ticket(ctx context.Context, id int64) (api.Ticket, error)
	// Wait returns the ticket once it has a resource, has ended, or can never be served. It keeps waiting across
	// restarts of the manager, until ctx ends. NotFound.
	Wait(ctx context.Context, id int64, w api.Waiting) (api.Ticket, error)
	// Close gives a ticket's resource back, or cancels the ticket. Closing twice is no error. NotFound.
	Close(ctx context.Context, id int64) (api.Ticket, error)
	// Renew restarts the lease of a ticket. NotFound. Conflict: the ticket has ended, or has no lease.
	Renew(ctx context.Context, id int64) (api.Ticket, error)
	// Tickets lists tickets, the oldest first.
	Tickets(ctx context.Context, of api.Selection) (api.Tickets, error)
}

// ask reads the settings and calls do with a client: of the manager of pools that the settings name, else of the cloud
// whose URL they have, else of the manager on this machine.
func ask(cmd *cobra.Command, do func(ctx context.Context, c manager, output string) error) error {
	return askAndWarn(cmd, warnings(cmd.ErrOrStderr()), do)
}

// warnings returns a function that prints each sentence once.
func warnings(w io.Writer) func(string) {
	printed := map[string]bool{}
	return func(sentence string) {
		if !printed[sentence] {
			printed[sentence] = true
			fmt.Fprintln(w, "croft: warning: "+plain.Line(sentence))
		}
	}
}

func askAndWarn(cmd *cobra.Command, warn func(string),
	do func(ctx context.Context, c manager, output string) error) error {
	s, err := args.LoadSettings(cmd.Flags())
	if err != nil {
		return err
	}
	if !overAPI(s) {
		return askManager(cmd, s, warn, func(ctx context.Context, c *api.Client, output string) error {
			return do(ctx, c, output)
		})
	}
	return args.WithSettings(cmd.Context(), s, func(ctx context.Context, c *args.Client) error {
		return do(ctx, client.Pools{Client: c.Client}, s.Output)
	})
}

// overAPI reports whether the settings name a cloud by its URL, and no manager of pools.
func overAPI(s direct.Settings) bool {
	return s.Settings.Set() && !s.Settings.Found && len(s.Pool.Endpoints) == 0
}

// operate does the same as ask, for operations that only a manager offers to its operators. Denied: the settings name a
// cloud.
func operate(cmd *cobra.Command, do func(ctx context.Context, c *api.Client, output string) error) error {
	s, err := args.LoadSettings(cmd.Flags())
	if err != nil {
		return err
	}
	if overAPI(s) {
		return croft.Errorf(croft.Denied,
			"%s is for operators of the manager of pools, and not in the API of the cloud "+
				"at %s: name the manager with --server", cmd.CommandPath(), s.URL)
	}
	return askManager(cmd, s, warnings(cmd.ErrOrStderr()), do)
}

// askManager calls do with a client of the manager of pools.
func askManager(cmd *cobra.Command, s direct.Settings, warn func(string),
	do func(ctx context.Context, c *api.Client, output string) error) error {
	c, err := s.Pool.Client()
	if err != nil {
		return err
	}
	defer c.CloseIdle()
	c.OnWarning(warn)
	return do(cmd.Context(), c, s.Output)
}

func completePoolNames(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return complete(cmd, args, prefix, func(ctx context.Context, c manager) (all []string, err error) {
		pools, err := c.Pools(ctx)
		for _, p := range pools {
			all = append(all, cobra.CompletionWithDesc(p.Name, fmt.Sprintf("%d ready, %d taken", p.Ready, p.Taken)))
		}
		return all, err
	})
}

func completeResources(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 && cmd.Name() != "remove" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return complete(cmd, args, prefix, func(ctx context.Context, c manager) (all []string, err error) {
		resources, err := c.Resources(ctx, "", false)
		for _, r := range resources {
			all = append(all, cobra.CompletionWithDesc(r.Name, stateCell(r).Text))
		}
		return all, err
	})
}

// completeTickets completes numbers of open tickets.
func completeTickets(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return complete(cmd, args, prefix, func(ctx context.Context, c manager) (all []string, err error) {
		list, err := c.Tickets(ctx, api.Selection{})
		for _, t := range list.Tickets {
			words := ticketCell(t).Text + " " + strings.Join(t.Tags, ",")
			all = append(all, cobra.CompletionWithDesc(strconv.FormatInt(t.ID, 10), words))
		}
		return all, err
	})
}

// complete completes names with this prefix that are not arguments yet.
func complete(cmd *cobra.Command, given []string, prefix string,
	list func(context.Context, manager) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), args.CompletionTimeout)
	defer cancel()
	var found []string
	_ = askAndWarn(cmd, nil, func(_ context.Context, c manager, _ string) error {
		all, err := list(ctx, c)
		for _, one := range all {
			name, _, _ := strings.Cut(one, "\t")
			if strings.HasPrefix(name, prefix) && !strings.Contains("\t"+strings.Join(given, "\t")+"\t",
				"\t"+name+"\t") {
				found = append(found, one)
			}
		}
		return err
	})
	return found, cobra.ShellCompDirectiveNoFileComp
}

func stateCell(r api.Resource) out.Cell {
	switch {
	case r.State == "UP" && r.Ticket != 0:
		return out.Cell{Text: "taken", Color: out.Green}
	case r.State == "UP" && r.Failures > 0:
		return out.Cell{Text: "failing", Color: out.Red}
	case r.State == "UP":
		return out.Cell{Text: "ready", Color: out.Green}
	case r.State == "ENDED":
		return out.Cell{Text: "ended"}
	}
	return out.Cell{Text: strings.ToLower(r.State), Color: out.Yellow}
}

// ticketCell returns a ticket's state in a word.
func ticketCell(t api.Ticket) out.Cell {
	switch {
	case t.Waiting() && t.Never:
		return out.Cell{Text: "never", Color: out.Red}
	case t.Waiting():
		return out.Cell{Text: "waiting", Color: out.Yellow}
	case t.Ready():
		return out.Cell{Text: "ready", Color: out.Green}
	case t.State == api.TicketFailed:
		return out.Cell{Text: "failed", Color: out.Red}
	}
	return out.Cell{Text: "closed"}
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(time.DateTime)
}
