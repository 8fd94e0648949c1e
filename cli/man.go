package cli

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"croft/cli/args"
	"croft/internal/build"
)

// manCommand writes the manual pages of all commands and programs under other names.
func (p Program) manCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages into a directory",
		Args:  args.Count(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("write manual pages: %w", err)
			}
			header := &doc.GenManHeader{Title: "CROFT", Section: "1", Source: "croft " + build.Version, Manual: "croft"}
			roots := []*cobra.Command{cmd.Root()}
			for _, name := range slices.Sorted(maps.Keys(p.Others)) {
				roots = append(roots, p.named(name))
			}
			for _, root := range roots {
				root.DisableAutoGenTag = true // makes the pages reproducible
				escape(root)
				if err := doc.GenManTree(root, header, args[0]); err != nil {
					return fmt.Errorf("write the manual pages of %s: %w", root.Name(), err)
				}
			}
			return nil
		},
	}
}

// escape protects text in angle brackets, such as <host>, which the generator would drop as HTML.
func escape(cmd *cobra.Command) {
	cmd.Long = strings.ReplaceAll(cmd.Long, "<", `\<`)
	for _, sub := range cmd.Commands() {
		escape(sub)
	}
}
