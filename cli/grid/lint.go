package grid

import (
	"github.com/spf13/cobra"

	"croft/cli/args"
)

func lintCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "lint",
		Short: "Check all files",
		Args:  args.Count(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := o.load(cmd)
			return err
		},
	}
}
