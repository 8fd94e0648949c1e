package projects

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/control/api"
	"croft/control/federation"
	"croft/internal/out"
	"croft/tenant"
	"croft/tenant/access"
)

func memberCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "member",
		Short: "Manage the members of a project and their roles",
		Long: `member manages the members of a project and their roles: reader, member, or
project-admin, who also administers the projects below it. The name of a user is that
user's name at the identity provider; tokens (croft token --for api) have their own
role.`,
	}
	set := &cobra.Command{
		Use:   "set PROJECT USER ROLE",
		Short: "Give a user a role in a project: reader, member or project-admin",
		ValidArgsFunction: func(cmd *cobra.Command, given []string, prefix string) ([]string,
			cobra.ShellCompDirective) {
			switch len(given) {
			case 0:
				return projects.Complete(1)(cmd, given, prefix)
			case 2:
				return access.Words(access.MemberRoles), cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, given []string) error {
			return changeMembers(cmd, given[0], func(p *tenant.Tenant) error {
				p.Members[given[1]] = access.Role(given[2])
				return p.Check()
			}, "%s is %s in project %s", given[1], given[2], given[0])
		},
	}
	m := federation.Mapping{}
	remove := &cobra.Command{
		Use:   "remove PROJECT [USER]",
		Short: "Remove a user from a project, or the members of a project of another cloud",
		RunE: func(cmd *cobra.Command, given []string) error {
			if foreign := m.Peer != "" && m.Theirs != ""; foreign == (len(given) == 2) ||
				(m.Peer == "") != (m.Theirs == "") {
				return croft.Errorf(croft.Invalid,
					"name a user, or a project of another cloud with --peer and --their-project")
			}
			if len(given) == 1 {
				m.Project = croft.Project(given[0])
				return removeMapping(cmd, m)
			}
			return changeMembers(cmd, given[0], func(p *tenant.Tenant) error {
				if _, is := p.Members[given[1]]; !is {
					return croft.Errorf(croft.NotFound, "%q is no member of project %s", given[1], p.Name)
				}
				delete(p.Members, given[1])
				return nil
			}, "%s is no longer a member of project %s", given[1], given[0])
		},
	}
	mappingFlags(remove, &m)
	cmd.AddCommand(set, memberAddCommand(), remove)
	return cmd
}

func changeMembers(cmd *cobra.Command, name string, change func(*tenant.Tenant) error, format string,
	words ...any) error {
	return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
		p, err := args.FindProject(ctx, c, croft.Project(name))
		if err != nil {
			return err
		}
		if p.Members == nil {
			p.Members = map[string]access.Role{}
		}
		if err := change(&p); err != nil {
			return err
		}
		if p, err = c.SetMembers(ctx, api.Members{ProjectBase: baseOf(p), Members: p.Members}); err != nil {
			return err
		}
		return c.Report(p, format, words...)
	})
}

// show prints a project with its members and its account.
func show(ctx context.Context, cmd *cobra.Command, c *args.Client, p tenant.Tenant) error {
	account, err := c.GetQuota(ctx, api.ProjectNamed{Project: p.Name})
	if err != nil {
		return err
	}
	list, err := c.ListMappings(ctx, api.ProjectNamed{Project: p.Name})
	if err != nil {
		return err
	}
	mappings := list.Mappings
	defaults, err := c.GetDefaultQuota(ctx)
	if err != nil {
		return err
	}
	if c.WantsData() {
		return c.PrintData(struct {
			tenant.Tenant

			Used      tenant.Amounts       `json:"used"`
			Effective tenant.Limits        `json:"effective"` // its limits, with the default ones
			Stored    tenant.Amounts       `json:"stored,omitempty"`
			Mappings  []federation.Mapping `json:"mappings,omitempty"`
		}{p, account.Used, effective(account, defaults.Limits), account.Stored, mappings})
	}
	t := out.Table{}
	t.Texts("name", string(p.Name))
	t.Texts("id", string(p.ID))
	if p.Parent != "" {
		t.Texts("parent", string(p.Parent))
	}
	if p.Note != "" {
		t.Texts("note", p.Note)
	}
	for _, user := range slices.Sorted(maps.Keys(p.Members)) {
		t.Texts("member", fmt.Sprintf("%s (%s)", user, p.Members[user]))
	}
	for _, m := range mappings {
		t.Texts("member", fmt.Sprintf("members of %s in %s (%s)", m.Theirs, m.Alias, m.Role))
	}
	for _, r := range rows(account, defaults.Limits) {
		t.Texts("quota", fmt.Sprintf("%s %d of %s", r.measure, r.used, r.limit))
	}
	return t.Print(cmd.OutOrStdout())
}
