package clusters

import (
	"context"
	"errors"
	"strings"

	"croft"
	"croft/cli/args"
	"croft/cli/verb"
	"croft/control/api"
	"croft/internal/out"
)

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
