package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/out"
)

// shortToken is the part of a token's name shown to people.
func shortToken(name string) string { return name[:min(8, len(name))] }

func tokenListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the tokens that count, without their secrets",
		Args:    args.Count(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
				return listTokens(ctx, c, cmd)
			})
		},
	}
}

// tokenData is a token in JSON and YAML.
type tokenData struct {
	Name    string    `json:"name"`
	Note    string    `json:"note,omitempty"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
}

func listTokens(ctx context.Context, c *args.Client, cmd *cobra.Command) error {
	all, err := c.Tokens.List(ctx)
	if err != nil {
		return err
	}
	list := []tokenData{}
	t := out.Table{Color: out.IsColored(cmd.OutOrStdout())}
	t.Head("NAME", "FOR", "CREATED", "EXPIRES")
	for _, i := range all {
		list = append(list, tokenData{shortToken(i.Name), i.Note, i.Created, i.Expires})
		t.Texts(shortToken(i.Name), out.OrDash(i.Note), i.Created.Local().Format(time.DateTime),
			i.Expires.Local().Format(time.DateTime))
	}
	if f := c.Settings.Output; f == out.FormatJSON || f == out.FormatYAML {
		return out.PrintData(cmd.OutOrStdout(), f, list)
	}
	return t.Print(cmd.OutOrStdout())
}

func tokenRevokeCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "revoke NAME",
		Aliases: []string{"rm"},
		Short:   "End a token at once; hosts that joined with it stay",
		Long: `revoke ends a token at once, so that nobody joins with it any more. Hosts that have
joined with it stay; croft host forget removes one.`,
		Args: args.Count(1, 1),
		ValidArgsFunction: func(cmd *cobra.Command, given []string, prefix string) ([]string,
			cobra.ShellCompDirective) {
			if len(given) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return args.StoredNames(cmd, given, prefix, func(ctx context.Context, c *args.Client,
				offer args.Offer) error {
				all, err := c.Tokens.List(ctx)
				for _, i := range all {
					offer(shortToken(i.Name), i.Note)
				}
				return err
			}), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, given []string) error {
			if given[0] == "" {
				return croft.Errorf(croft.Invalid,
					"the name of a token is empty; `croft token list` shows those that count")
			}
			return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
				i, err := c.Tokens.Revoke(ctx, given[0])
				if err == nil {
					fmt.Fprintf(cmd.ErrOrStderr(), "token %s is revoked\n", shortToken(i.Name))
				}
				return err
			})
		},
	}
}
