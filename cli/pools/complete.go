package pools

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"croft/cli/args"
	"croft/pool/api"
)

func completePoolNames(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return complete(cmd, args, prefix, func(ctx context.Context, c *api.Client) (all []string, err error) {
		pools, err := c.Pools(ctx)
		for _, p := range pools {
			all = append(all, cobra.CompletionWithDesc(p.Name, fmt.Sprintf("%d ready, %d taken", p.Ready, p.Taken)))
		}
		return all, err
	})
}

func completeResources(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 && !slices.Contains([]string{"delete"}, cmd.Name()) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return complete(cmd, args, prefix, func(ctx context.Context, c *api.Client) (all []string, err error) {
		resources, err := c.Resources(ctx, "", false)
		for _, r := range resources {
			all = append(all, cobra.CompletionWithDesc(r.Name, stateCell(r).Text))
		}
		return all, err
	})
}

// completeTickets completes numbers of open tickets.
func completeTickets(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return complete(cmd, args, prefix, func(ctx context.Context, c *api.Client) (all []string, err error) {
		list, err := c.Tickets(ctx, false, 0)
		for _, t := range list.Tickets {
			words := ticketCell(t).Text + " " + strings.Join(t.Tags, ",")
			all = append(all, cobra.CompletionWithDesc(strconv.FormatInt(t.ID, 10), words))
		}
		return all, err
	})
}

// complete completes names with this prefix that are not arguments yet.
func complete(cmd *cobra.Command, given []string, prefix string,
	list func(context.Context, *api.Client) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), args.CompletionTimeout)
	defer cancel()
	var found []string
	_ = ask(cmd, func(_ context.Context, c *api.Client, _ string) error {
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
