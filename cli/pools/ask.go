package pools

import (
	"context"

	"github.com/spf13/cobra"

	"croft/cli/args"
	"croft/cli/out"
	"croft/pool/api"
)

// addFlags defines the flags of commands that call a manager of pools.
func addFlags(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.String("settings", "", "read settings from this `file` instead of searching schedule.yaml")
	flags.String("server", "", "`URLs` of the managers of pools, with commas (pool.endpoints)")
	flags.StringP("output", "o", "", "print text, table, json or yaml (`format`; output)")
	complete := cobra.FixedCompletions(out.Formats, cobra.ShellCompDirectiveNoFileComp)
	_ = cmd.RegisterFlagCompletionFunc("output", complete) // the flag is defined above
}

// ask reads the settings and calls do with a client of a manager of pools.
func ask(cmd *cobra.Command, do func(ctx context.Context, c *api.Client, output string) error) error {
	s, err := args.LoadSettings(cmd.Flags())
	if err != nil {
		return err
	}
	c, err := s.Pool.Client()
	if err != nil {
		return err
	}
	defer c.CloseIdle()
	return do(cmd.Context(), c, s.Output)
}
