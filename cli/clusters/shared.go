package clusters

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/internal/command"
	"croft/internal/nearest"
	"croft/internal/out"
)

// group returns a command that only has subcommands.
func group(use, short, long, example string) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Example: example,
		Args: func(cmd *cobra.Command, given []string) error {
			if len(given) > 0 {
				return command.OnlySubcommands(cmd, given)
			}
			words := command.Subcommands(cmd)
			return croft.Errorf(croft.Invalid, "usage: %s %s or %s", cmd.CommandPath(),
				strings.Join(words[:len(words)-1], ", "), words[len(words)-1])
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	return cmd
}

// overClouds adds commands to a group, with the flags of commands that connect to a cloud.
func overClouds(cmd *cobra.Command, all ...*cobra.Command) {
	for _, sub := range all {
		args.AddCloudFlags(sub.PersistentFlags())
		command.CompleteFlag(sub, "output", out.Formats)
		cmd.AddCommand(sub)
	}
}

// isData reports whether the output is for programs.
func isData(c *args.Client) bool {
	return c.Settings.Output == out.FormatJSON || c.Settings.Output == out.FormatYAML
}

// print prints a result for programs as data, and else as table does.
func print(cmd *cobra.Command, c *args.Client, data any, table func(*out.Table)) error {
	if isData(c) {
		return out.PrintData(cmd.OutOrStdout(), c.Settings.Output, data)
	}
	t := out.Table{Color: out.IsColored(cmd.OutOrStdout())}
	table(&t)
	return t.Print(cmd.OutOrStdout())
}

// report reports an action, or prints the result for programs.
func report(cmd *cobra.Command, c *args.Client, data any, format string, words ...any) error {
	if isData(c) {
		return out.PrintData(cmd.OutOrStdout(), c.Settings.Output, data)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", words...)
	return nil
}

// removals removes the named objects, and reports each.
func removals(cmd *cobra.Command, given []string, what string, remove func(context.Context, *args.Client, string) error,
) error {
	return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
		var errs []error
		for _, name := range given {
			err := remove(ctx, c, name)
			if errs = append(errs, err); err == nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s %s is removed\n", what, name)
			}
		}
		return errors.Join(errs...)
	})
}

// completing completes names that list offers, up to most arguments; a negative most means any number.
func completing(most int, list func(context.Context, *args.Client, args.Offer) error) cobra.CompletionFunc {
	return func(cmd *cobra.Command, given []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if most >= 0 && len(given) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return args.StoredNames(cmd, given, prefix, list), cobra.ShellCompDirectiveNoFileComp
	}
}

// near adds the nearest known name to a NotFound error.
func near(err error, name string, known func() []string) error {
	if !errors.Is(err, croft.NotFound) || strings.Contains(err.Error(), "did you mean") {
		return err
	}
	if hint := nearest.Hint(name, known()); hint != "" {
		return croft.Errorf(croft.NotFound, "%w%s", err, hint)
	}
	return err
}

func yes(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}
