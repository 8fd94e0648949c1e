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
	"croft/internal/out"
	"croft/internal/wording"
	"croft/trust/invitation"
)

func (o *options) createForHost(cmd *cobra.Command, _ []string) error {
	life := o.life
	if !cmd.Flags().Changed("expires") && o.lifeFlag == "" {
		life = time.Hour
	}
	if life < time.Second || life > invitation.LongestLife {
		return croft.Errorf(croft.Invalid, "--%s %s: use something between 1s and %s", cmp.Or(o.lifeFlag, "expires"),
			wording.Duration(life), wording.Duration(invitation.LongestLife))
	}
	return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
		wanted := api.NewInvitation{Note: o.note, Host: o.host, Life: wording.ForPrograms(life), Member: o.member,
			SameEtcd: cmd.Flags().Changed("etcd"), SamePlacement: cmd.Flags().Changed("placement")}
		if c.Settings.Settings.Set() && (wanted.SameEtcd || wanted.SamePlacement) {
			return croft.Errorf(croft.Invalid, "hosts learn the addresses of etcd and Placement when they join")
		}
		token, err := c.CreateInvitation(ctx, wanted)
		if err != nil {
			return err
		}
		return printSecret(c, struct {
			Token   string    `json:"token"`
			Name    string    `json:"name"`
			Expires time.Time `json:"expires"`
		}{token.Token, short(token.Name), token.Expires}, token.Token,
			fmt.Sprintf("anyone who has this can join for %s; on the other machine: croft up --join - (and paste it)",
				wording.Duration(life)))
	})
}

// short returns the part of a token's name that is printed.
func short(name string) string { return name[:min(8, len(name))] }

// hostTokens are the tokens with which hosts join.
var hostTokens = verb.Noun[api.Invitation]{
	Name: "token",
	All: func(ctx context.Context, c *args.Client) ([]api.Invitation, error) {
		list, err := c.ListInvitations(ctx)
		return list.Invitations, err
	},
	Find: func(ctx context.Context, c *args.Client, name string) (api.Invitation, error) {
		list, err := c.ListInvitations(ctx)
		for _, t := range list.Invitations {
			if strings.HasPrefix(t.Name, name) {
				return t, nil
			}
		}
		return api.Invitation{}, cmp.Or(err, croft.Errorf(croft.NotFound,
			"there is no token %q; `croft token list` shows the valid ones", name))
	},
	Word: func(t api.Invitation) (string, string) { return short(t.Name), t.Note },
	Head: []string{"NAME", "FOR", "CREATED", "EXPIRES"},
	Row: func(t api.Invitation) []out.Cell {
		return verb.Texts(short(t.Name), purpose(t), t.Created.Local().Format(time.DateTime),
			t.Expires.Local().Format(time.DateTime))
	},
	Data: func(t api.Invitation) any {
		t.Name = short(t.Name)
		return t
	},
}

// purpose describes what a token is for: its note, and what it permits beyond the joining of new hosts.
func purpose(t api.Invitation) string {
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
		return verb.Each(given, hostTokens.Known(ctx, c), func(name string) error {
			t, err := c.RevokeInvitation(ctx, api.InvitationNamed{Name: name})
			if err == nil {
				c.Say("token %s is revoked", short(t.Name))
			}
			return err
		})
	})
}
