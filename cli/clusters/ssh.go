package clusters

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/instances"
	"croft/cluster"
	"croft/control/api"
)

// reaching describes how ssh reaches a host of a cluster.
type reaching struct {
	instances.Login

	host string
}

func sshCommand() *cobra.Command {
	var r reaching
	cmd := &cobra.Command{
		Use:   "ssh UUID|NAME [COMMAND...]",
		Short: "Log in to a cluster's master, or to another host of it",
		Long: `ssh runs the system's ssh to the address of the master, or of the host that --host
names, with the key of the cluster's request.

A host at the site local is identified by a host key that croft created for it, and is
reached as by schedule ssh, as the user of its image. For hosts of other
sites, ssh itself asks whether you trust their keys, and the user is that of ssh, or
--user.`,
		Example: `  croft cluster ssh web
  croft cluster ssh web --host slave-0 -l debian uptime`,
		ValidArgsFunction: clusters.Complete(1),
		RunE: func(cmd *cobra.Command, given []string) error {
			command, err := afterName(cmd, given[1:])
			if err != nil {
				return err
			}
			return args.With(cmd, func(ctx context.Context, c *args.Client) error {
				return r.run(ctx, cmd, c, given[0], command)
			})
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // flags after the command's first word belong to the command
	f.StringVar(&r.host, "host", string(cluster.Master), "this `host`: its name, its UUID, master, or slave-0")
	r.Flags(f)
	return cmd
}

// afterName parses the flags between the name of the cluster and the command, and returns the command. Invalid: a flag
// is unknown.
func afterName(cmd *cobra.Command, rest []string) ([]string, error) {
	if len(rest) == 0 || !strings.HasPrefix(rest[0], "-") || rest[0] == "--" {
		return rest, nil
	}
	if err := cmd.Flags().Parse(rest); err != nil {
		return nil, croft.Errorf(croft.Invalid, "%w; write -- before a command that begins with a dash", err)
	}
	return cmd.Flags().Args(), nil
}

// run runs ssh and returns its exit code.
func (r reaching) run(ctx context.Context, cmd *cobra.Command, c *args.Client, name string, rest []string) error {
	asking, cancel := context.WithTimeout(ctx, args.AnswerTimeout)
	defer cancel()
	have, err := find(asking, c, name)
	if err != nil {
		return err
	}
	m, err := member(have, r.host)
	if err != nil {
		return err
	}
	command := instances.Typed(rest)
	if have.Site == cluster.LocalSite {
		i, err := c.Instance(asking, string(m.ID))
		if err != nil {
			return err
		}
		return r.Run(ctx, cmd, c, i, command)
	}
	var flags []string
	for _, option := range [][2]string{{"-l", r.User}, {"-J", r.Jump}, {"-i", r.Identity}} {
		if option[1] != "" {
			flags = append(flags, option[0], option[1])
		}
	}
	if r.Identity == "" {
		flags = append(flags, instances.Identities(have.Keys)...)
	}
	return instances.SSH(ctx, cmd, memberName(m), append(append(flags, "--", m.Address), command...))
}

// member returns the host with this name, which must have an address. NotFound.
func member(have api.Cluster, name string) (cluster.Member, error) {
	var known []string
	for _, m := range have.Members {
		known = append(known, memberName(m))
		if name != memberName(m) && name != m.Name && name != string(m.ID) {
			continue
		}
		if m.Address == "" {
			return m, croft.Errorf(croft.NotFound, "host %s of cluster %s has no address: it is %s", memberName(m),
				have.Name, memberWords(m))
		}
		return m, nil
	}
	return cluster.Member{}, croft.Errorf(croft.NotFound, "cluster %s has no host %q, but %s", have.Name, name,
		strings.Join(known, ", "))
}
