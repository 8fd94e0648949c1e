package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"croft/cli/args"
	"croft/image"
)

// completionTimeout is how long somebody who presses the tab key waits for names.
const completionTimeout = time.Second

// completeInstances completes up to so many names of instances, any number for -1.
func completeInstances(most int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if most >= 0 && len(args) >= most {
			return completeImages(cmd, args, prefix)
		}
		found := storedNames(cmd, args, prefix, func(ctx context.Context, c *client, offer func(name, what string)) error {
			all, err := c.List(ctx, c.Project)
			for _, st := range all {
				offer(st.Instance.Name, state(st).Text)
			}
			return err
		})
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// storedNames are the names that the cloud knows, as list offers them with what they
// stand for, that begin so and are no arguments yet; none where it does not answer.
func storedNames(cmd *cobra.Command, given []string, prefix string, list func(ctx context.Context, c *client, offer func(name, what string)) error) []string {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	s, err := args.LoadSettings(cmd.Flags())
	if err != nil {
		return nil
	}
	var found []string
	_ = withSettings(ctx, s, func(ctx context.Context, c *client) error {
		return list(ctx, c, func(name, what string) {
			if strings.HasPrefix(name, prefix) && !slices.Contains(given, name) {
				found = append(found, cobra.CompletionWithDesc(name, what))
			}
		})
	})
	return found
}

// completeImages completes the second argument of a query.
func completeImages(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if cmd.Name() != "schedule" || len(args) != 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return imageNames(prefix), cobra.ShellCompDirectiveDefault
}

// imageNames are the catalog's that begin so; none where it cannot be read.
func imageNames(prefix string) []string {
	catalog, err := image.LoadCatalog(image.CatalogFiles(), nil)
	if err != nil {
		return nil
	}
	var found []string
	for _, name := range catalog.Names() {
		if strings.HasPrefix(name, prefix) {
			found = append(found, name)
		}
	}
	return found
}
