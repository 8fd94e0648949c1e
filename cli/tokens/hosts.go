package tokens

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/verb"
	"croft/control/api"
	"croft/control/cloud"
	"croft/internal/out"
	"croft/internal/wording"
)

func (o *options) createForHost(cmd *cobra.Command, _ []string) error {
	life := o.life
	if !cmd.Flags().Changed("expires") && o.lifeFlag == "" {
		life = time.Hour
	}
	if life < time.Second || life > cloud.LongestInvitation {
		return croft.Errorf(croft.Invalid, "--%s %s: use something between 1s and %s", cmp.Or(o.lifeFlag, "expires"),
			wording.Duration(life), wording.Duration(cloud.LongestInvitation))
	}
	return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
		token, err := c.Tokens.Invite(ctx, cloud.Invitation{
			Note: o.note, Host: o.host, Life: life, Member: o.member,
			SameEtcd: cmd.Flags().Changed("etcd"), SamePlacement: cmd.Flags().Changed("placement"),
		})
		if err != nil {
			return err
		}
		return printSecret(c, struct {
			Token   string    `json:"token"`
			Name    string    `json:"name"`
			Expires time.Time `json:"expires"`
		}{token.Secret, short(token.Name), token.Expires}, token.Secret,
			fmt.Sprintf("whoever has this can join for %s; on the other machine: croft up --join - (and paste it)",
				wording.Duration(life)))
	})
}

// short returns the part of a token's name that is printed.
func short(name string) string { return name[:min(8, len(name))] }

// hostTokens are the tokens with which hosts join.
var hostTokens = verb.Noun[cloud.Token]{
	Name: "token",
	All:  func(ctx context.Context, c *args.Client) ([]cloud.Token, error) { return c.Tokens.List(ctx) },
	Word: func(t cloud.Token) (string, string) { return short(t.Name), t.Note },
	Head: []string{"NAME", "FOR", "CREATED", "EXPIRES"},
	Row: func(t cloud.Token) []out.Cell {
		return verb.Texts(short(t.Name), purpose(t), t.Created.Local().Format(time.DateTime),
			t.Expires.Local().Format(time.DateTime))
	},
	Data: func(t cloud.Token) any {
		shown := api.InvitationOf(t)
		shown.Name, shown.Token = short(t.Name), ""
		return shown
	},
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

func (*options) listForHosts(cmd *cobra.Command, _ []string) error {
	return hostTokens.List("").RunE(cmd, nil)
}

func completeForHosts(cmd *cobra.Command, given []string, prefix string) []string {
	return args.StoredNames(cmd, given, prefix, hostTokens.Offer)
}

func (*options) removeForHosts(cmd *cobra.Command, given []string) error {
	for _, name := range given {
		if name == "" {
			return croft.Errorf(croft.Invalid, "the name of a token is empty; `croft token list` shows the valid ones")
		}
	}
	return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
		return verb.Each(given, func(name string) error {
			t, err := c.Tokens.Revoke(ctx, name)
			if err == nil {
				c.Say("token %s is revoked", short(t.Name))
			}
			return err
		})
	})
}
