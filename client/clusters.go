package client

import (
	"context"
	"errors"
	"time"

	"croft"
	"croft/cluster"
	"croft/control/api"
	"croft/internal/delay"
)

// clusters implements cloud.Clusters. The token determines the user of requests.
type clusters struct{ *Client }

// clusterNamed returns the input that names a cluster.
func clusterNamed(project croft.Project, idOrName string) api.ClusterNamed {
	return api.ClusterNamed{InProject: api.InProject{Project: project}, ID: idOrName}
}

// Create implements cloud.Clusters.
func (c clusters) Create(ctx context.Context, r cluster.Request) (cluster.Created, error) {
	made, err := c.CreateCluster(ctx, api.NewCluster{InProject: api.InProject{Project: r.Project},
		ClusterRequest: api.ClusterRequestOf(r)})
	return cluster.Created{Cluster: made.Plain(), Reused: made.Reused}, err
}

// Explain implements cloud.Clusters.
func (c clusters) Explain(ctx context.Context, r cluster.Request) (cluster.Explanation, error) {
	return c.ExplainCluster(ctx, api.ClusterCandidates{InProject: api.InProject{Project: r.Project},
		ClusterRequest: api.ClusterRequestOf(r)})
}

// Find implements cloud.Clusters.
func (c clusters) Find(ctx context.Context, project croft.Project, idOrName string) (cluster.Cluster, error) {
	found, err := c.get(ctx, api.ClusterAwaited{ClusterNamed: clusterNamed(project, idOrName)})
	return found.Plain(), err
}

// get reads a cluster, even a deleted one.
func (c clusters) get(ctx context.Context, in api.ClusterAwaited) (api.Cluster, error) {
	found, err := c.GetCluster(ctx, in)
	if p, is := errors.AsType[*api.Problem](err); is && p.Code == api.Gone && p.Cluster != nil {
		return *p.Cluster, nil
	}
	return found, err
}

// List implements cloud.Clusters.
func (c clusters) List(ctx context.Context, project croft.Project, f cluster.Filter) (all []cluster.Cluster,
	err error) {
	list, err := c.ListClusters(ctx, api.ClusterFilter{InProject: api.InProject{Project: project}, State: f.State,
		Appliance: f.Appliance, Site: f.Site})
	for _, one := range list.Clusters {
		all = append(all, one.Plain())
	}
	return all, err
}

const (
	longestTurn = 5 * time.Minute // longest time that one request waits
	look        = 500 * time.Millisecond
)

// Wait implements cloud.Clusters. With progress, it polls the cluster; without, each request waits for a long time.
func (c clusters) Wait(ctx context.Context, project croft.Project, idOrName string, progress func(cluster.Cluster)) (
	have cluster.Cluster, err error) {
	in := api.ClusterAwaited{ClusterNamed: clusterNamed(project, idOrName)}
	for last := (time.Time{}); ; {
		if progress == nil {
			in.Wait = turn(ctx)
		}
		now, err := c.get(ctx, in)
		if err != nil {
			if ctx.Err() != nil && have.ID != "" {
				return have, nil
			}
			return now.Plain(), err
		}
		if have = now.Plain(); progress != nil && !have.Updated.Equal(last) {
			progress(have)
			last = have.Updated
		}
		if in.ID = string(have.ID); now.Settled || delay.For(ctx, look) != nil {
			return have, nil
		}
	}
}

// turn returns how many seconds one request waits.
func turn(ctx context.Context) int {
	most := longestTurn
	if until, bounded := ctx.Deadline(); bounded {
		most = min(most, time.Until(until)-time.Second)
	}
	return max(1, int(most/time.Second))
}

// Events implements cloud.Clusters.
func (c clusters) Events(ctx context.Context, project croft.Project, idOrName string) ([]cluster.Event, error) {
	list, err := c.ListClusterEvents(ctx, clusterNamed(project, idOrName))
	return list.Events, err
}

// Change implements cloud.Clusters.
func (c clusters) Change(ctx context.Context, project croft.Project, idOrName string, change cluster.Change,
	generation *int64) (cluster.Cluster, error) {
	now, err := c.ChangeCluster(ctx, api.ClusterChange{ClusterNamed: clusterNamed(project, idOrName), Change: change,
		Base: generation})
	return now.Plain(), err
}

// AddHost implements cloud.Clusters.
func (c clusters) AddHost(ctx context.Context, project croft.Project, idOrName string) (cluster.Cluster, error) {
	now, err := c.AddClusterHost(ctx, clusterNamed(project, idOrName))
	return now.Plain(), err
}

// RemoveHost implements cloud.Clusters.
func (c clusters) RemoveHost(ctx context.Context, project croft.Project, idOrName, host string) (cluster.Cluster,
	error) {
	now, err := c.RemoveClusterHost(ctx,
		api.ClusterHostNamed{ClusterNamed: clusterNamed(project, idOrName), Host: host})
	return now.Plain(), err
}

// Delete implements cloud.Clusters.
func (c clusters) Delete(ctx context.Context, project croft.Project, idOrName string, r cluster.Removal) (
	cluster.Cluster, error) {
	now, err := c.DeleteCluster(ctx, api.ClusterRemoval{ClusterNamed: clusterNamed(project, idOrName), Force: r.Force,
		Abandon: r.Abandon})
	return now.Plain(), err
}

// EndUse implements cloud.Clusters.
func (c clusters) EndUse(ctx context.Context, project croft.Project, idOrName string, use cluster.UseID) (
	cluster.Cluster, error) {
	in := clusterNamed(project, idOrName)
	if err := c.Client.EndUse(ctx, api.UseNamed{ClusterNamed: in, Use: use}); err != nil {
		return cluster.Cluster{}, err
	}
	return c.Find(ctx, project, idOrName)
}

// Account implements cloud.Clusters. It does not report whether the account was made.
func (c clusters) Account(ctx context.Context, project croft.Project, idOrName, _ string) (cluster.Login, error) {
	got, err := c.MakeAccount(ctx, clusterNamed(project, idOrName))
	return cluster.Login{Username: got.Username, Password: cluster.NewSecret(got.Password)}, err
}

// RemoveAccount implements cloud.Clusters.
func (c clusters) RemoveAccount(ctx context.Context, project croft.Project, idOrName, _ string) error {
	return c.Client.RemoveAccount(ctx, clusterNamed(project, idOrName))
}

// Output implements cloud.Clusters.
func (c clusters) Output(ctx context.Context, project croft.Project, idOrName, _, name string) (cluster.Output, error) {
	got, err := c.ReadOutput(ctx, api.OutputNamed{ClusterNamed: clusterNamed(project, idOrName), Output: name})
	return cluster.Output{Name: got.Name, Value: got.Value, Secret: got.Secret}, err
}
