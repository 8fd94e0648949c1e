package hosts

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"croft/cli/args"
	"croft/cli/verb"
	"croft/control/api"
	"croft/internal/out"
)

func inventoryCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "inventory UUID|NAME",
		Short: "Show what a host offers of each class of resources",
		Long: `inventory shows for each class of resources what a host offers, what it reserves for
itself, its allocation ratio, and what is claimed. The host's agent writes this from the
host's hardware and its settings (offer in compute.yaml).`,
		ValidArgsFunction: args.CompleteHosts,
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			list, err := c.GetInventory(ctx, api.HostNamed{ID: c.Args[0]})
			if err != nil {
				return err
			}
			if c.WantsData() {
				return c.PrintData(list)
			}
			t := out.Table{Color: out.IsColored(c.Cmd.OutOrStdout())}
			t.Head("RESOURCE", "TOTAL", "RESERVED", "RATIO", "CAPACITY", "USED", "LEAST", "MOST", "STEP")
			number := func(n int64) string { return strconv.FormatInt(n, 10) }
			for _, i := range list.Inventories {
				t.Texts(string(i.ResourceType), number(i.Total), number(i.Reserved),
					strconv.FormatFloat(i.AllocationRatio, 'g', -1, 64), number(i.Capacity), number(i.Used),
					number(i.MinUnit), number(i.MaxUnit), number(i.StepSize))
			}
			return t.Print(c.Cmd.OutOrStdout())
		}),
	}
}
