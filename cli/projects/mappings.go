package projects

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/control/api"
	"croft/control/federation"
	"croft/internal/command"
	"croft/tenant/access"
)

// mappingFlags defines the flags that say which peer's members are meant, and of which project.
func mappingFlags(cmd *cobra.Command, m *federation.Mapping) {
	cmd.Flags().StringVar((*string)(&m.Peer), "peer", "", "`alias` of their cloud")
	cmd.Flags().StringVar((*string)(&m.Theirs), "their-project", "", "`project` there")
}

func memberAddCommand() *cobra.Command {
	m := federation.Mapping{}
	cmd := &cobra.Command{
		Use:   "add PROJECT --peer PEER --their-project PROJECT --role ROLE",
		Short: "Make the members of a project of another cloud members of one here",
		Long: `add maps a project of a peer to a project here: its members get the role here, limited
by their role there and by the roles of the peer. What they create counts against the
quota of the project here. Members with the role project-admin may create projects below
that project, with quotas, and change the role of the mapping; only operators map
further projects.

The mapping holds for one project and not for its name: --their-project-id names its
UUID, which croft project show prints in the other cloud. Without it, the first request
from a project of that name decides. If that project is removed there, members of a later
project of the same name do not get in.

Repeating the command changes the role.`,
		Example: `  croft project member add shop --peer east --their-project web --role member \
      --their-project-id 0b29f1a0-4a53-5d0a-a6e1-3d1b8f5a7c55`,
	}
	mappingFlags(cmd, &m)
	cmd.Flags().StringVar((*string)(&m.TheirsID), "their-project-id", "", "`UUID` of that project")
	cmd.Flags().StringVar((*string)(&m.Role), "role", "",
		"`role` that they have at most: reader, member, project-admin")
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		if m.Peer == "" || m.Theirs == "" || m.Role == "" {
			return croft.Errorf(croft.Invalid, "name the project and the role: --peer PEER --their-project PROJECT "+
				"--role ROLE; for users of this cloud use croft project member set")
		}
		m.Project = croft.Project(given[0])
		if err := m.Check(); err != nil {
			return err
		}
		return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
			set, err := c.SetMapping(ctx, api.NewMapping{ProjectNamed: api.ProjectNamed{Project: m.Project},
				Peer: m.Peer, Theirs: m.Theirs, TheirsID: m.TheirsID, Role: m.Role})
			if croft.KindOf(err) == croft.NotFound {
				err = cmp.Or(args.UnknownProject(ctx, c, m.Project), err)
			}
			if err != nil {
				return err
			}
			return c.Report(set, "members of %s in %s are %s of project %s", set.Theirs, set.Alias,
				set.Role,
				set.Project)
		})
	}
	command.CompleteFlag(cmd, "role", access.Words(access.MemberRoles))
	return cmd
}

// removeMapping ends the membership of the members of a peer's project.
func removeMapping(cmd *cobra.Command, m federation.Mapping) error {
	return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
		if err := m.Project.Check(); err != nil {
			return err
		}
		err := c.RemoveMapping(ctx, api.MappingNamed{ProjectNamed: api.ProjectNamed{Project: m.Project}, Peer: m.Peer,
			Theirs: m.Theirs})
		if croft.KindOf(err) == croft.NotFound {
			err = cmp.Or(args.UnknownProject(ctx, c, m.Project), err)
		}
		if err == nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "members of %s in %s are no longer members of project %s\n", m.Theirs,
				m.Peer,
				m.Project)
		}
		return err
	})
}
