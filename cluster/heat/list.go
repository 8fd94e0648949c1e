package heat

import (
	"context"

	"croft"
	"croft/cluster"
)

// List implements cluster.Driver.
func (d *Driver) List(ctx context.Context, at cluster.SiteAccess) ([]cluster.Found, error) {
	a, err := d.connect(ctx, at)
	if err != nil {
		return nil, err
	}
	all, err := a.list(ctx, partitionTag(at.Partition))
	if err != nil {
		return nil, err
	}
	several := map[croft.ClusterID]int{}
	for _, st := range all {
		several[clusterOf(st.Tags, at.Partition)]++
	}
	var found []cluster.Found
	for _, st := range all {
		id := clusterOf(st.Tags, at.Partition)
		if id == "" || several[id] > 1 && d.phase(st) == cluster.Removing {
			continue // a duplicate stack that is being deleted
		}
		found = append(found, cluster.Found{Cluster: id, Remote: a.remote(st)})
	}
	return found, nil
}
