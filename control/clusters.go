package control

import (
	"context"
	"errors"
	"net/http"
	"time"

	"croft"
	"croft/cluster"
	"croft/control/actions"
	"croft/control/api"
	"croft/tenant/access"
)

var clusterOperations = noun{Tag: "clusters",
	Description: "Clusters: a master and any number of slaves that an appliance describes and a site builds. They " +
		"are named by UUID or by their name in the project, and their hosts are instances only at the site local. " +
		"A change is written down when it is answered with 202, and done after that; `wait` waits for its end.",
	Home: true,
	Operations: []Operation{
		list(Operation{ID: "listClusters", At: "GET /v1/clusters", May: access.Reads, Summary: "List clusters"},
			listClusters),
		do(Operation{ID: "createCluster", At: "POST /v1/clusters",
			Also: []int{http.StatusCreated, http.StatusAccepted}, May: access.Changes, Personal: true,
			Summary: "Ask for a cluster, and get a new one or one that can be reused",
			Description: "A cluster of the same user, appliance and parameters that is large enough is reused, " +
				"unless `reuse` is `never`: the answer is that one, with one use more. The very same request with " +
				"the same `id` is answered with what it made. Where no site can build the cluster, the problem " +
				"no_capacity says why for each site."}, createCluster),
		// Changes: like createCluster, since it reveals how full sites are
		do(Operation{ID: "explainCluster", At: "POST /v1/candidates/clusters", May: access.Changes, Log: never,
			Summary: "Say where a cluster would be built, and why not elsewhere"},
			func(ctx context.Context, c *call, in api.ClusterCandidates) (cluster.Explanation, error) {
				why, err := c.Cloud.Clusters.Explain(ctx, c.request(in.Spec))
				why.Candidates = append([]cluster.Choice{}, why.Candidates...)
				why.Dropped = append([]cluster.Dropped{}, why.Dropped...)
				return why, err
			}),
		do(Operation{ID: "getCluster", At: "GET /v1/clusters/{id}", May: access.Reads,
			Summary: "Get a cluster",
			Description: "For 24 hours after its end the answer is the problem gone, by the UUID, which has the " +
				"last state of the cluster."},
			func(ctx context.Context, c *call, in api.ClusterAwaited) (api.Cluster, error) {
				have, err := livingCluster(ctx, c, in.ID)
				if err == nil {
					have, err = waitedForCluster(c, have, in.Wait)
				}
				if err == nil && have.State == cluster.Deleted {
					err = goneCluster(have)
				}
				return api.ClusterOf(have), err
			}),
		do(Operation{ID: "changeCluster", Also: accepted, At: "PATCH /v1/clusters/{id}", May: access.Changes,
			Summary: "Resize a cluster, or change its name or how long it stays"}, changeCluster),
		do(Operation{ID: "deleteCluster", Also: accepted, At: "DELETE /v1/clusters/{id}", May: access.Changes,
			Summary: "Remove a cluster and all of its hosts", Conflict: api.InUse}, deleteCluster),
		do(Operation{ID: "listClusterEvents", At: "GET /v1/clusters/{id}/events", May: access.Reads,
			Summary: "List what happened to a cluster"},
			func(ctx context.Context, c *call, in api.ClusterNamed) (list api.ClusterEventList, err error) {
				have, err := foundCluster(ctx, c, in.ID)
				if err != nil {
					return list, err
				}
				all, err := c.Cloud.Clusters.Events(ctx, have.Project, string(have.ID))
				return api.ClusterEventList{Events: append([]cluster.Event{}, all...)}, err
			}),
		do(Operation{ID: "addClusterHost", Also: accepted, At: "POST /v1/clusters/{id}/hosts", May: access.Changes,
			Summary: "Make a cluster larger by one slave",
			Description: "Each request adds one. To repeat a request whose answer was lost, change `slaves` of " +
				"the cluster instead, which has the same effect however often it comes."},
			func(ctx context.Context, c *call, in api.ClusterNamed) (api.Cluster, error) {
				return orderedOf(ctx, c, in, func(have cluster.Cluster) (cluster.Cluster, error) {
					now, err := c.Cloud.Clusters.AddHost(ctx, have.Project, string(have.ID))
					return now, notPlaced(err)
				})
			}),
		do(Operation{ID: "removeClusterHost", At: "DELETE /v1/clusters/{id}/hosts/{host}", Also: accepted,
			May:     access.Changes,
			Summary: "Make a cluster smaller by one slave",
			Description: "Each request for `last` removes one. To repeat a request whose answer was lost, name " +
				"the slave, or change `slaves` of the cluster instead."},
			func(ctx context.Context, c *call, in api.ClusterHostNamed) (api.Cluster, error) {
				return orderedOf(ctx, c, in.ClusterNamed, func(have cluster.Cluster) (cluster.Cluster, error) {
					return c.Cloud.Clusters.RemoveHost(ctx, have.Project, string(have.ID), in.Host)
				})
			}),
		do(Operation{ID: "endUse", Also: accepted, At: "DELETE /v1/clusters/{id}/uses/{use}", May: access.Changes,
			Summary: "End a use of a cluster, which is idle without any"},
			func(ctx context.Context, c *call, in api.UseNamed) (nothing, error) {
				have, err := livingCluster(ctx, c, in.ID)
				if err == nil {
					_, err = c.Cloud.Clusters.EndUse(ctx, have.Project, string(have.ID), in.Use)
				}
				return nothing{}, err
			}),
		// Changes: for oneself
		do(Operation{ID: "makeAccount", At: "PUT /v1/clusters/{id}/accounts/me", Also: []int{http.StatusCreated},
			May: access.Changes, Personal: true,
			Summary: "Get the caller's account on the machines of a cluster, made by its agent if necessary"},
			makeAccount),
		do(Operation{ID: "removeAccount", At: "DELETE /v1/clusters/{id}/accounts/me", May: access.Changes,
			Personal: true, Summary: "Forget the caller's account; on the machines it stays"},
			func(ctx context.Context, c *call, in api.ClusterNamed) (nothing, error) {
				have, err := livingCluster(ctx, c, in.ID)
				if err == nil {
					err = c.Cloud.Clusters.RemoveAccount(ctx, have.Project, string(have.ID), c.caller.User)
				}
				return nothing{}, err
			}),
		// Changes: of one's own clusters
		do(Operation{ID: "readOutput", At: "POST /v1/clusters/{id}/outputs/{output}", May: access.Changes,
			Summary: "Read an output of one's own cluster, also a secret one; each read is in the action log"},
			readOutput),
	},
}

// foundCluster returns a cluster by its UUID or name, if the caller may do the operation on it. It returns a deleted
// cluster only for operations that permit it.
func foundCluster(ctx context.Context, c *call, name string) (cluster.Cluster, error) {
	project := c.home()
	if _, err := croft.ParseClusterID(name); err == nil {
		project = "" // of any project; checked below
	}
	have, err := c.Cloud.Clusters.Find(ctx, project, name)
	if errors.Is(err, croft.NotFound) {
		return have, c.hidden("cluster", name, err)
	}
	if err != nil {
		return have, err
	}
	if !c.scope.Sees(have.Project) || c.query.Has("project") && have.Project != c.project {
		return cluster.Cluster{}, api.Hidden("cluster", name)
	}
	c.regarding(have.Project, actions.Cluster, string(have.ID), have.Name)
	return have, c.authorize(have.Project)
}

// livingCluster is foundCluster for operations that need a cluster that is not deleted.
func livingCluster(ctx context.Context, c *call, name string) (cluster.Cluster, error) {
	have, err := foundCluster(ctx, c, name)
	if err == nil && have.State == cluster.Deleted {
		err = goneCluster(have)
	}
	return have, err
}

// goneCluster is the answer about a deleted cluster.
func goneCluster(have cluster.Cluster) error {
	p := api.NewProblem(api.Gone, "cluster "+have.Name+" was deleted at "+have.Ended.UTC().Format(time.RFC3339))
	shown := api.ClusterOf(have)
	p.Cluster = &shown
	return p
}

// orderedCluster is the answer for a recorded order. The order is complete when the cluster is settled.
func orderedCluster(c *call, have cluster.Cluster) api.Cluster {
	c.action.record(c, actions.Done)
	c.status = http.StatusAccepted
	return api.ClusterOf(have)
}

// orderedOf orders something of a cluster that is not deleted.
func orderedOf(ctx context.Context, c *call, in api.ClusterNamed,
	order func(have cluster.Cluster) (cluster.Cluster, error)) (api.Cluster, error) {
	have, err := livingCluster(ctx, c, in.ID)
	if err == nil {
		have, err = order(have)
	}
	if err != nil {
		return api.Cluster{}, err
	}
	return orderedCluster(c, have), nil
}

// request returns the caller's request for a cluster.
func (c *call) request(s cluster.Spec) cluster.Request {
	return cluster.Request{Spec: s, Project: c.home(), User: c.caller.User}
}

func listClusters(ctx context.Context, c *call, in api.ClusterFilter) (api.ClusterList, error) {
	list := api.ClusterList{Clusters: []api.Cluster{}}
	all, err := c.Cloud.Clusters.List(ctx, c.project, cluster.Filter{State: in.State, Appliance: in.Appliance,
		Site: in.Site})
	for _, have := range all {
		if c.scope.Sees(have.Project) {
			list.Clusters = append(list.Clusters, api.ClusterOf(have))
		}
	}
	return list, err
}

func createCluster(ctx context.Context, c *call, in api.NewCluster) (api.Cluster, error) {
	c.regarding(c.home(), actions.Cluster, string(in.ID), in.Name)
	made, err := c.Cloud.Clusters.Create(ctx, c.request(in.Spec))
	if err != nil {
		return api.Cluster{}, notPlaced(err)
	}
	have := made.Cluster
	c.regarding(have.Project, actions.Cluster, string(have.ID), have.Name)
	c.action.record(c, actions.Done) // independently of how the wait ends
	if have, err = waitedForCluster(c, have, in.Wait); err != nil {
		return api.Cluster{}, err
	}
	document := api.ClusterOf(have)
	document.Reused = made.Reused
	c.status = http.StatusAccepted
	switch {
	case made.Reused:
		c.status = http.StatusOK
	case have.State == cluster.Ready:
		c.status = http.StatusCreated
	}
	c.w.Header().Set("Location", "/v1/clusters/"+string(have.ID))
	return document, nil
}

// notPlaced returns the reason why a cluster was not created or enlarged.
func notPlaced(err error) error {
	if why, ok := errors.AsType[*cluster.ChoiceError](err); ok {
		p := api.NewProblem(api.NoCapacity, why.Error())
		p.Why = append([]cluster.Dropped{}, why.Dropped...)
		return p
	}
	if is, ok := errors.AsType[*croft.TakenError](err); ok && is.What == "id" {
		return api.NewProblem(api.UUIDReused, err.Error())
	} else if ok {
		return api.NewProblem(api.NameTaken, err.Error())
	}
	return err
}

// waitedForCluster returns a cluster after a wait of at most so many seconds; 0: no wait.
func waitedForCluster(c *call, have cluster.Cluster, seconds int) (cluster.Cluster, error) {
	if seconds == 0 {
		return have, nil
	}
	lasting, end := c.lasting()
	defer end()
	ctx, cancel := context.WithTimeout(lasting, time.Duration(seconds)*time.Second)
	defer cancel()
	now, err := c.Cloud.Clusters.Wait(ctx, have.Project, string(have.ID), nil)
	switch {
	case err == nil:
		return now, nil
	case c.r.Context().Err() == nil && lasting.Err() != nil:
		return have, errRevoked
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		brief, cancel := c.brief()
		defer cancel()
		return c.Cloud.Clusters.Find(brief, have.Project, string(have.ID))
	}
	return have, err
}

func changeCluster(ctx context.Context, c *call, in api.ClusterChange) (api.Cluster, error) {
	have, err := livingCluster(ctx, c, in.ID)
	if err != nil {
		return api.Cluster{}, err
	}
	var base *int64
	if in.Base.Given() {
		base = &have.Generation
		if !in.Base.Accepts(api.ClusterOf(have).EntityTag()) {
			return api.Cluster{}, mismatch("cluster " + have.Name + " was changed by another request")
		}
	}
	now, err := c.Cloud.Clusters.Change(ctx, have.Project, string(have.ID), in.Change, base)
	if err != nil {
		return api.Cluster{}, clusterChanged(ctx, c, have, base, notPlaced(err))
	}
	if !now.Settled() {
		return orderedCluster(c, now), nil
	}
	return api.ClusterOf(now), nil
}

// clusterChanged distinguishes a changed generation from a state that does not permit the operation.
func clusterChanged(ctx context.Context, c *call, have cluster.Cluster, base *int64, err error) error {
	if base == nil || !errors.Is(err, croft.Conflict) {
		return err
	}
	now, failed := c.Cloud.Clusters.Find(ctx, have.Project, string(have.ID))
	if failed == nil && now.Generation != *base {
		return api.NewProblem(api.GenerationMismatch, err.Error())
	}
	return c.problem(err)
}

func deleteCluster(ctx context.Context, c *call, in api.ClusterRemoval) (api.Cluster, error) {
	return orderedOf(ctx, c, in.ClusterNamed, func(have cluster.Cluster) (cluster.Cluster, error) {
		if (in.Force || in.Abandon) && have.User != c.caller.User && !c.caller.Operator() &&
			!c.caller.Has(access.ProjectAdmin) {
			return have, api.NewProblem(api.ForbiddenVerb, "cluster "+have.Name+" is "+have.User+"'s: only "+have.User+
				" and admins of the project may delete it by force; ask one of them")
		}
		return c.Cloud.Clusters.Delete(ctx, have.Project, string(have.ID), cluster.Removal{User: c.caller.User,
			Force: in.Force, Abandon: in.Abandon})
	})
}

// makeAccount answers with the account of the caller; it returns no other user's account.
func makeAccount(ctx context.Context, c *call, in api.ClusterNamed) (api.ClusterAccount, error) {
	have, err := livingCluster(ctx, c, in.ID)
	if err != nil {
		return api.ClusterAccount{}, err
	}
	login, err := c.Cloud.Clusters.Account(ctx, have.Project, string(have.ID), c.caller.User)
	if err != nil {
		return api.ClusterAccount{}, fromSite(err)
	}
	if login.Made {
		c.status = http.StatusCreated
	}
	c.w.Header().Set("Cache-Control", "no-store")
	return api.ClusterAccount{Username: login.Username, Password: login.Password.Reveal()}, nil
}

// readOutput answers with an output of a cluster of the caller. It is not a GET, so that each read is in the action
// log.
func readOutput(ctx context.Context, c *call, in api.OutputNamed) (api.ClusterOutput, error) {
	have, err := livingCluster(ctx, c, in.ID)
	if err != nil {
		return api.ClusterOutput{}, err
	}
	if have.User != c.caller.User {
		return api.ClusterOutput{}, api.NewProblem(api.ForbiddenVerb, "cluster "+have.Name+" is "+have.User+
			"'s, who alone reads its secret outputs")
	}
	o, err := c.Cloud.Clusters.Output(ctx, have.Project, string(have.ID), c.caller.User, in.Output)
	if err != nil {
		return api.ClusterOutput{}, fromSite(err)
	}
	c.w.Header().Set("Cache-Control", "no-store")
	return api.ClusterOutput{Name: o.Name, Value: o.Value, Secret: o.Secret}, nil
}

// fromSite is the answer when a site, or a machine there, does not respond. The caller may know this, unlike errors
// inside the cloud.
func fromSite(err error) error {
	if away, ok := errors.AsType[*cluster.AwayError](err); ok {
		return api.NewProblem(api.BackendDown, away.Error())
	}
	if errors.Is(err, croft.Denied) { // by the site: the caller has permission
		return api.NewProblem(api.BadRequest, err.Error())
	}
	return err
}
