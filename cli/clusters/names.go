package clusters

import (
	"context"
	"errors"
	"strings"

	"croft"
	"croft/cli/args"
	"croft/cli/verb"
	"croft/cluster"
)

var clusters = verb.Noun[cluster.Cluster]{
	Name: "cluster",
	Use:  "UUID|NAME",
	All: func(ctx context.Context, c *args.Client) ([]cluster.Cluster, error) {
		return c.Clusters.List(ctx, c.Project, cluster.Filter{})
	},
	Word: func(one cluster.Cluster) (string, string) {
		return one.Name, strings.ToLower(string(one.State)) + ", " + cluster.ApplianceName(one.Appliance)
	},
}

// find returns a cluster. A NotFound error suggests the nearest name.
func find(ctx context.Context, c *args.Client, idOrName string) (cluster.Cluster, error) {
	have, err := c.Clusters.Find(ctx, c.Project, idOrName)
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
