package tokens

import (
	"cmp"
	"context"
	"fmt"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/verb"
	"croft/control/api"
	"croft/internal/out"
	"croft/internal/wording"
	"croft/tenant"
	"croft/tenant/access"
)

// month is the default life of a token for the API.
const month = 720 * time.Hour

func (o *options) createForAPI(cmd *cobra.Command, _ []string) error {
	wanted := api.NewToken{User: o.user, Role: access.Role(cmp.Or(o.role, string(access.Member))), Note: o.note}
	life := o.life
	if !cmd.Flags().Changed("expires") {
		life = month
	}
	if err := check(cmd, &wanted, life); err != nil {
		return err
	}
	return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
		if wanted.Role != access.PartitionAdmin || cmd.Flags().Changed("project") {
			wanted.Project = c.Project
		}
		if err := haveProject(ctx, c, wanted.Project, o.project); err != nil {
			return err
		}
		t, err := c.CreateToken(ctx, wanted)
		if err != nil {
			return err
		}
		where := "project " + string(t.Project)
		if t.Project == "" {
			where = "the whole cloud"
		}
		return printSecret(c, t, t.Secret, fmt.Sprintf("token %s: %s is %s of %s until %s; it is not shown again", t.ID,
			t.User, strings.Join(access.Words(t.Roles), ", "), where, t.Expires.Local().Format(time.DateTime)))
	})
}

// haveProject returns an error if a project does not exist, which may be a typing mistake; with create, it creates the
// project.
func haveProject(ctx context.Context, c *args.Client, name croft.Project, create bool) error {
	if name == "" || name == croft.DefaultProject {
		return nil
	}
	if _, err := c.GetProject(ctx, api.ProjectNamed{Project: name}); croft.KindOf(err) != croft.NotFound {
		return err
	}
	if !create {
		err := args.UnknownProject(ctx, c, name)
		if err == nil || tenant.Hinted(err) {
			return err
		}
		return croft.Errorf(croft.NotFound, "there is no project %s: name another one, or create it (croft project create "+
			"%[1]s, or --create)", name)
	}
	_, err := c.CreateProject(ctx, api.NewProject{Name: name})
	return err
}

// check completes and validates the values of the flags, before any request is sent to a cloud.
func check(cmd *cobra.Command, wanted *api.NewToken, life time.Duration) error {
	if err := wanted.Role.CheckAmong(access.TokenRoles); err != nil {
		return croft.Errorf(croft.Invalid, "--role: %w", err)
	}
	wanted.Life = wording.ForPrograms(life)
	if life < access.ShortestTokenLife || life > access.LongestTokenLife {
		return croft.Errorf(croft.Invalid, "--expires %s: use something between %s and %s",
			wording.Duration(life), wording.Duration(access.ShortestTokenLife),
			wording.Duration(access.LongestTokenLife))
	}
	if !cmd.Flags().Changed("user") {
		u, err := user.Current()
		if err != nil {
			return croft.Errorf(croft.Invalid, "find out your user name: %w; give --user", err)
		}
		wanted.User = u.Username
	}
	if err := access.CheckUser(wanted.User); err != nil {
		return croft.Errorf(croft.Invalid, "--user: %w", err)
	}
	return nil
}

// apiTokens are the tokens for the API, of the project that a flag names, or of all projects.
var apiTokens = verb.Noun[api.AccessToken]{
	Name: "token",
	All: func(ctx context.Context, c *args.Client) ([]api.AccessToken, error) {
		var project croft.Project
		if c.Cmd != nil && c.Cmd.Flags().Changed("project") {
			project = c.Project
		}
		list, err := c.ListTokens(ctx, api.InProject{Project: project})
		if err == nil && len(list.Tokens) == 0 {
			err = args.SimilarProject(ctx, c, project)
		}
		return list.Tokens, err
	},
	Word: func(t api.AccessToken) (string, string) {
		return string(t.ID), strings.TrimSpace(t.User + " " + t.Note)
	},
	Head: []string{"ID", "PROJECT", "USER", "ROLE", "FOR", "CREATED", "EXPIRES"},
	Row: func(a api.AccessToken) []out.Cell {
		return append(verb.Texts(string(a.ID), out.OrDash(string(a.Project)), a.User,
			strings.Join(access.Words(a.Roles), ", "), out.OrDash(a.Note), a.Created.Local().Format(time.DateTime)),
			expiry(a.Expires))
	},
}

func (*options) listForAPI(cmd *cobra.Command, _ []string) error {
	return apiTokens.List("").RunE(cmd, nil)
}

func completeForAPI(cmd *cobra.Command, given []string, prefix string) []string {
	return args.StoredNames(cmd, given, prefix, apiTokens.Offer)
}

func (*options) removeForAPI(cmd *cobra.Command, given []string) error {
	for _, id := range given {
		if err := access.TokenID(id).Check(); err != nil {
			return err
		}
	}
	return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
		return verb.Each(given, apiTokens.Known(ctx, c), func(id string) error {
			t, err := c.RevokeToken(ctx, api.TokenNamed{ID: id})
			if err == nil {
				c.Say("token %s of %s is revoked", t.ID, t.User)
			}
			return err
		})
	})
}
