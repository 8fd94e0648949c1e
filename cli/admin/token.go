package admin

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/control/cloud"
	"croft/internal/command"
	"croft/internal/out"
	"croft/internal/wording"
)

// TokenCommand returns the command croft token.
func TokenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make, list and revoke tokens with which hosts join this cloud",
		Long: `token is about join tokens: with one, a machine becomes a host of this cloud. The
tokens with which people and programs call its API are of croft access.`,
		Example: `  croft token create --note "rack 7"
  croft token list
  croft token revoke 5f0c1a2b`,
		Args: func(cmd *cobra.Command, args []string) error {
			return croft.Errorf(croft.Invalid, "usage: %s create, list or revoke", cmd.CommandPath())
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	args.AddCloudFlags(cmd.PersistentFlags())
	command.CompleteFlag(cmd, "output", out.Formats)
	cmd.AddCommand(tokenCreateCommand(), tokenListCommand(), tokenRevokeCommand())
	return cmd
}

func tokenCreateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Print a token for croft up --join",
		Long: `create prints a token with which other machines become hosts of this cloud:

  croft up --join -          # and paste it; or --join @FILE

It counts for an hour (--for), any number of times, and has to be kept secret. It says
where hosts join (join.listen) and the SHA-256 of the authority of the certificate
there, so that a new host speaks to no other; there the host proves that it has the
token, and gets its own certificates, which it renews by itself from then on.

Only new hosts join with it. One whose certificates ran out while it was away gets a
token of its own: --host NAME.

A cloud whose etcd is not croft's own, or has certificates of another authority, has no
server that signs. A token for it says where etcd is and whose certificate it
has. Where etcd asks clients for certificates or passwords, a host needs those in its
own settings (etcd.cert, etcd.key, etcd.user, etcd.password_file); so it does where
Placement is OpenStack's (placement.cloud).

etcd and Placement have to be reachable from there: the addresses are those that they
listen on, or what --etcd and --placement say.`,
		Args: command.Count(0, 0),
	}
	life := command.Duration(cmd.Flags(), "for", time.Hour, "how long the token counts, at most a week")
	note := cmd.Flags().String("note", "", "what it is for, in `words` that croft token list shows")
	host := cmd.Flags().String("host", "",
		"let this host, by `name` or UUID, join once more; without it only hosts that are new join")
	_ = cmd.RegisterFlagCompletionFunc("host", args.CompleteHosts) // the flag is defined above
	member := cmd.Flags().Bool("etcd-member", false,
		"where trust is strict: let hosts join with --etcd-member, and so reach etcd")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *life < time.Second || *life > cloud.LongestInvitation {
			return croft.Errorf(croft.Invalid, "--for %s: use something between 1s and %s", wording.Duration(*life),
				wording.Duration(cloud.LongestInvitation))
		}
		return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
			token, err := c.Tokens.Invite(ctx, cloud.Invitation{
				Note: *note, Host: *host, Life: *life, Member: *member,
				SameEtcd: cmd.Flags().Changed("etcd"), SamePlacement: cmd.Flags().Changed("placement"),
			})
			if err != nil {
				return err
			}
			return printToken(cmd, c.Settings.Output, token, *life)
		})
	}
	return cmd
}

// printToken prints only the token on stdout, and its purpose on stderr.
func printToken(cmd *cobra.Command, format string, token cloud.Token, life time.Duration) error {
	if format == out.FormatJSON || format == out.FormatYAML {
		return out.PrintData(cmd.OutOrStdout(), format, struct {
			Token   string    `json:"token"`
			Name    string    `json:"name"`
			Expires time.Time `json:"expires"`
		}{token.Secret, shortToken(token.Name), token.Expires})
	}
	fmt.Fprintf(cmd.ErrOrStderr(),
		"whoever has this can join for %s; on the other machine: croft up --join - (and paste it)\n", wording.Duration(life))
	_, err := fmt.Fprintln(cmd.OutOrStdout(), token.Secret)
	return err
}

// shortToken returns the part of a token's name that is printed.
func shortToken(name string) string { return name[:min(8, len(name))] }

func tokenListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the tokens that count, without their secrets",
		Args:    command.Count(0, 0),
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
	// the only host that may join with it; empty: new hosts only
	Host   croft.HostID `json:"host,omitempty"`
	Member bool         `json:"member,omitempty"`
}

// purpose describes what a token is for: its note, and what it permits beyond the joining of new hosts.
func purpose(t cloud.Token) string {
	var parts []string
	if t.Note != "" {
		parts = append(parts, t.Note)
	}
	if t.Host != "" {
		parts = append(parts, "only host "+string(t.Host))
	}
	if t.Member {
		parts = append(parts, "may serve etcd")
	}
	return out.OrDash(strings.Join(parts, "; "))
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
		list = append(list, tokenData{shortToken(i.Name), i.Note, i.Created, i.Expires, i.Host, i.Member})
		t.Texts(shortToken(i.Name), purpose(i), i.Created.Local().Format(time.DateTime),
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
		Args: command.Count(1, 1),
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
					"the name of a token is empty; `croft token list` shows the valid ones")
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
