package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// manCommand writes the manual pages of all commands.
func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages into a directory",
		Args:  count(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("write manual pages: %w", err)
			}
			header := &doc.GenManHeader{Title: "CROFT", Section: "1", Source: "croft " + version, Manual: "croft"}
			root := cmd.Root()
			root.DisableAutoGenTag = true // the same pages whenever they are written
			return doc.GenManTree(root, header, args[0])
		},
	}
}
