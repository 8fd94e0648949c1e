package client

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"croft"
	"croft/cluster"
	"croft/control/api"
	"croft/internal/delay"
)

// clusters implements cloud.Clusters. The token determines the user of requests.
type clusters struct{ *Client }

// clusterPath returns the path of a cluster, or of something below it.
func clusterPath(project croft.Project, idOrName string, below ...string) string {
	return path(project, append([]string{"v1", "clusters", idOrName}, below...))
}

// Create implements cloud.Clusters.
func (c clusters) Create(ctx context.Context, r cluster.Request) (cluster.Created, error) {
	var made api.Cluster
	err := c.ask(ctx, http.MethodPost, path(r.Project, []string{"v1", "clusters"}), api.ClusterRequestOf(r), &made)
	return cluster.Created{Cluster: made.Plain(), Reused: made.Reused}, err
}

// Explain implements cloud.Clusters.
func (c clusters) Explain(ctx context.Context, r cluster.Request) (why cluster.Explanation, err error) {
	at := path(r.Project, []string{"v1", "candidates", "clusters"})
	return why, c.ask(ctx, http.MethodPost, at, api.ClusterRequestOf(r), &why)
}

// Find implements cloud.Clusters.
func (c clusters) Find(ctx context.Context, project croft.Project, idOrName string) (cluster.Cluster, error) {
	found, err := c.get(ctx, clusterPath(project, idOrName))
	return found.Plain(), err
}

// get reads a cluster, even a deleted one.
func (c clusters) get(ctx context.Context, path string) (api.Cluster, error) {
	var found api.Cluster
	err := c.ask(ctx, http.MethodGet, path, nil, &found)
	if p, is := errors.AsType[*api.Problem](err); is && p.Code == api.Gone && p.Cluster != nil {
		return *p.Cluster, nil
	}
	return found, err
}

// List implements cloud.Clusters.
func (c clusters) List(ctx context.Context, project croft.Project, f cluster.Filter) ([]cluster.Cluster, error) {
	var list api.ClusterList
	at := path(project, []string{"v1", "clusters"}, "state", string(f.State), "appliance", f.Appliance, "site", f.Site)
	err := c.ask(ctx, http.MethodGet, at, nil, &list)
	var all []cluster.Cluster
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
	for last := (time.Time{}); ; {
		wait := ""
		if progress == nil {
			wait = turn(ctx)
		}
		now, err := c.get(ctx, path(project, []string{"v1", "clusters", idOrName}, "wait", wait))
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
		if idOrName = string(have.ID); now.Settled || delay.For(ctx, look) != nil {
			return have, nil
		}
	}
}

// turn returns how many seconds one request waits.
func turn(ctx context.Context) string {
	most := longestTurn
	if until, bounded := ctx.Deadline(); bounded {
		most = min(most, time.Until(until)-time.Second)
	}
	return strconv.Itoa(max(1, int(most/time.Second)))
}

// Events implements cloud.Clusters.
func (c clusters) Events(ctx context.Context, project croft.Project, idOrName string) ([]cluster.Event, error) {
	var list api.ClusterEventList
	err := c.ask(ctx, http.MethodGet, clusterPath(project, idOrName, "events"), nil, &list)
	return list.Events, err
}

// Change implements cloud.Clusters.
func (c clusters) Change(ctx context.Context, project croft.Project, idOrName string, change cluster.Change,
	generation *int64) (cluster.Cluster, error) {
	var now api.Cluster
	err := c.askWith(ctx, http.MethodPatch, clusterPath(project, idOrName), match(generation),
		api.ClusterChangeOf(change), &now)
	return now.Plain(), err
}

// AddHost implements cloud.Clusters.
func (c clusters) AddHost(ctx context.Context, project croft.Project, idOrName string) (cluster.Cluster, error) {
	var now api.Cluster
	err := c.ask(ctx, http.MethodPost, clusterPath(project, idOrName, "hosts"), nil, &now)
	return now.Plain(), err
}

// RemoveHost implements cloud.Clusters.
func (c clusters) RemoveHost(ctx context.Context, project croft.Project, idOrName, host string) (cluster.Cluster,
	error) {
	var now api.Cluster
	err := c.ask(ctx, http.MethodDelete, clusterPath(project, idOrName, "hosts", host), nil, &now)
	return now.Plain(), err
}

// Delete implements cloud.Clusters.
func (c clusters) Delete(ctx context.Context, project croft.Project, idOrName string, r cluster.Removal) (
	cluster.Cluster, error) {
	var now api.Cluster
	at := path(project, []string{"v1", "clusters", idOrName}, "force", yes(r.Force), "abandon", yes(r.Abandon))
	err := c.ask(ctx, http.MethodDelete, at, nil, &now)
	return now.Plain(), err
}

// yes returns the value of a boolean parameter; an empty value is left out.
func yes(set bool) string {
	if set {
		return "true"
	}
	return ""
}

// EndUse implements cloud.Clusters.
func (c clusters) EndUse(ctx context.Context, project croft.Project, idOrName string, use cluster.UseID) (
	cluster.Cluster, error) {
	if err := c.ask(ctx, http.MethodDelete, clusterPath(project, idOrName, "uses", string(use)), nil, nil); err != nil {
		return cluster.Cluster{}, err
	}
	return c.Find(ctx, project, idOrName)
}

// Account implements cloud.Clusters.
func (c clusters) Account(ctx context.Context, project croft.Project, idOrName, _ string) (cluster.Login, error) {
	answer, err := c.send(ctx, http.MethodPut, clusterPath(project, idOrName, "accounts", "me"), nil, nil)
	if err != nil {
		return cluster.Login{}, err
	}
	defer answer.Body.Close()
	var got api.ClusterAccount
	if err := c.decode(ctx, answer, &got); err != nil {
		return cluster.Login{}, err
	}
	return cluster.Login{Username: got.Username, Password: cluster.NewSecret(got.Password),
		Made: answer.StatusCode == http.StatusCreated}, nil
}

// RemoveAccount implements cloud.Clusters.
func (c clusters) RemoveAccount(ctx context.Context, project croft.Project, idOrName, _ string) error {
	return c.ask(ctx, http.MethodDelete, clusterPath(project, idOrName, "accounts", "me"), nil, nil)
}

// Output implements cloud.Clusters.
func (c clusters) Output(ctx context.Context, project croft.Project, idOrName, _, name string) (cluster.Output, error) {
	answer, err := c.send(ctx, http.MethodPost, clusterPath(project, idOrName, "outputs", name), nil, nil)
	if err != nil {
		return cluster.Output{}, err
	}
	defer answer.Body.Close()
	var got api.ClusterOutput
	err = c.decode(ctx, answer, &got)
	return cluster.Output{Name: got.Name, Value: got.Value, Secret: got.Secret}, err
}
