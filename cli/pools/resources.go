package pools

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"croft"
	"croft/internal/command"
	"croft/internal/out"
	"croft/pool/api"
)

func resourcesCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:               "resources [POOL]",
		Short:             "List the resources",
		ValidArgsFunction: completePoolNames,
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "list recently ended ones too")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return ask(cmd, func(ctx context.Context, c manager, output string) error {
			of := strings.Join(args, "")
			if of != "" {
				if _, err := c.Pool(ctx, of); err != nil {
					return err
				}
			}
			list, err := c.Resources(ctx, of, all)
			if err != nil {
				return err
			}
			return printResources(cmd.OutOrStdout(), output, list)
		})
	}
	return cmd
}

func printResources(w io.Writer, output string, all []api.Resource) error {
	return out.Print(w, output, all, func(t *out.Table) { resourceRows(t, all) })
}

func resourceRows(t *out.Table, all []api.Resource) {
	t.Head("ID", "NAME", "POOL", "STATE", "TICKET", "USES", "CREATED", "NOTE")
	for _, r := range all {
		ticket, uses := "-", r.Releases
		if r.Ticket != 0 {
			ticket = strconv.FormatInt(r.Ticket, 10)
			uses++
		}
		note := r.Reason
		if r.Error != "" {
			note = strings.TrimPrefix(note+": "+r.Error, ": ")
		}
		t.Row(out.Cell{Text: strconv.FormatInt(r.ID, 10)}, out.Cell{Text: r.Name}, out.Cell{Text: r.Pool}, stateCell(r),
			out.Cell{Text: ticket},
			out.Cell{Text: strconv.Itoa(uses)}, out.Cell{Text: stamp(r.Created)}, out.Cell{Text: note})
	}
}

func resourceCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "resource ID|NAME",
		Short:             "Show a resource, with what it hands out",
		ValidArgsFunction: completeResources,
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd, func(ctx context.Context, c manager, output string) error {
				r, err := c.Resource(ctx, args[0])
				if err != nil {
					return err
				}
				if output == out.FormatText {
					output = out.FormatYAML
				}
				if out.IsTable(output) {
					return printResources(cmd.OutOrStdout(), output, []api.Resource{r})
				}
				return out.PrintData(cmd.OutOrStdout(), output, r)
			})
		},
	}
}

func removeCommand() *cobra.Command {
	var all, unused bool
	cmd := &cobra.Command{
		Use:   "remove ID|NAME... | --all | --unused",
		Args:  command.Count(0, -1),
		Short: "Delete resources; pools start others in their place",
		Long: `remove deletes resources, even those in use: an open ticket that has one fails. A
resource that is being started is stopped. It prints the numbers of the resources and
does not wait for their end (croft pool resources shows it).`,
		ValidArgsFunction: completeResources,
	}
	cmd.Flags().BoolVar(&all, "all", false, "delete all that are up")
	cmd.Flags().BoolVar(&unused, "unused", false, "delete all that are up and not handed out")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if given := len(args) > 0; given == (all || unused) || all && unused {
			return croft.Errorf(croft.Invalid, "usage: %s", cmd.UseLine())
		}
		return operate(cmd, func(ctx context.Context, c *api.Client, output string) error {
			d, err := c.Delete(ctx, which(all, unused), args...)
			if err != nil {
				return err
			}
			if out.IsData(output) {
				return out.PrintData(cmd.OutOrStdout(), output, d.Deleted)
			}
			for _, id := range d.Deleted {
				fmt.Fprintln(cmd.OutOrStdout(), id)
			}
			return nil
		})
	}
	return cmd
}

// which returns the API's word for these flags.
func which(all, unused bool) string {
	switch {
	case all:
		return "all"
	case unused:
		return "unused"
	}
	return "none"
}

func logsCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "logs ID|NAME",
		Short:             "Print the output of a resource's commands",
		ValidArgsFunction: completeResources,
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd, func(ctx context.Context, c manager, _ string) error {
				text, err := c.Logs(ctx, args[0])
				if err != nil {
					return err
				}
				_, err = cmd.OutOrStdout().Write(text)
				return err
			})
		},
	}
}
