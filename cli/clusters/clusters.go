// Package clusters has the command croft cluster, for clusters and for what they need: sites, credentials and
// appliances. Results go to stdout, and messages to stderr.
package clusters

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/verb"
	"croft/control/api"
	"croft/internal/out"
)

// Command returns the command croft cluster.
func Command() *cobra.Command {
	cmd := verb.Group("cluster", "Ask for clusters of machines, here or at other sites",
		`cluster asks for clusters: a master and any number of slaves that an appliance
describes, such as slurm. A site builds it: the hosts of this cloud (local), or an
OpenStack with Heat, for which you need a credential. croft chooses a site that has
room; croft cluster explain prints which one, and why not another. A user who requests
the same appliance again gets the existing cluster, if it is large enough (--no-reuse: a
new one), and never the cluster of another user.`,
		`  croft cluster create web slurm --slaves 3
  croft cluster explain web slurm --slaves 3
  croft cluster resize web 5
  croft cluster ssh web
  croft cluster remove web`,
		createCommand(), explainCommand(), listCommand(), showCommand(), eventsCommand(), setCommand(),
		resizeCommand(), growCommand(), shrinkCommand(), removeCommand(), useCommand(), accountCommand(),
		outputCommand(), sshCommand())
	for _, sub := range cmd.Commands() {
		args.AddCloudFlags(sub.PersistentFlags())
	}
	cmd.AddCommand(siteCommand(), credentialCommand(), applianceCommand())
	return cmd
}

var clusters = verb.Noun[api.Cluster]{
	Name: "cluster",
	Use:  "UUID|NAME",
	All: func(ctx context.Context, c *args.Client) ([]api.Cluster, error) {
		list, err := c.ListClusters(ctx, api.ClusterFilter{InProject: api.InProject{Project: c.Project}})
		return list.Clusters, err
	},
	Word: func(one api.Cluster) (string, string) {
		return one.Name, strings.ToLower(string(one.State)) + ", " + one.Appliance
	},
	Head: []string{"NAME", "STATE", "APPLIANCE", "SITE", "HOSTS", "MASTER", "USER", "WHAT NOW"},
	Row: func(one api.Cluster) []out.Cell {
		return append([]out.Cell{{Text: one.Name}, state(one.State)}, verb.Texts(one.Appliance, out.OrDash(one.Site),
			howMany(one), out.OrDash(one.MasterIP), one.User, out.OrDash(now(one)))...)
	},
}

// named names a cluster in the project of a command.
func named(c *args.Client, idOrName string) api.ClusterNamed {
	return api.ClusterNamed{InProject: api.InProject{Project: c.Project}, ID: idOrName}
}

// nameOf names a cluster that was read.
func nameOf(have api.Cluster) api.ClusterNamed {
	return api.ClusterNamed{InProject: api.InProject{Project: have.Project}, ID: string(have.ID)}
}

// find returns a cluster, even a deleted one. A NotFound error suggests the nearest name.
func find(ctx context.Context, c *args.Client, idOrName string) (api.Cluster, error) {
	have, err := c.FindCluster(ctx, api.ClusterAwaited{ClusterNamed: named(c, idOrName)})
	return have, clusters.Near(ctx, c, idOrName, err)
}

// nearCluster adds the nearest name of a cluster to a NotFound error.
func nearCluster(ctx context.Context, c *args.Client, name string, err error) error {
	if errors.Is(err, croft.NotFound) {
		if _, missing := find(ctx, c, name); missing != nil {
			return missing
		}
	}
	return err
}
