// Package clusters answers requests of the API about clusters, sites, credentials, appliances and images for sites. Its
// callers have authenticated and authorized the request for its project. Objects that the caller may not see are
// answered with NotFound, and no answer contains a secret, except that of the caller's own account.
package clusters

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"croft"
	"croft/cluster"
	"croft/control/actions"
	"croft/control/api"
	"croft/tenant/access"
)

// found returns the cluster that the path names, if the caller may do the operation on it. It returns a deleted cluster
// only for operations that permit it.
func found(ctx context.Context, c Call) (cluster.Cluster, error) {
	name := c.R.PathValue("id")
	project := c.Project
	if _, err := croft.ParseClusterID(name); err == nil {
		project = "" // of any project; checked below
	}
	have, err := c.Cloud.Clusters.Find(ctx, project, name)
	if errors.Is(err, croft.NotFound) {
		return have, api.Hidden("cluster", name)
	}
	if err != nil {
		return have, err
	}
	if !c.Scope.Sees(have.Project) || c.Query.Has("project") && have.Project != c.Given {
		return cluster.Cluster{}, api.Hidden("cluster", name)
	}
	c.about(have.Project, actions.Cluster, string(have.ID), have.Name)
	return have, c.May(have.Project)
}

// living is found for operations that need a cluster that is not deleted.
func living(ctx context.Context, c Call) (cluster.Cluster, error) {
	have, err := found(ctx, c)
	if err == nil && have.State == cluster.Deleted {
		err = gone(have)
	}
	return have, err
}

// gone is the answer about a deleted cluster.
func gone(have cluster.Cluster) error {
	p := api.NewProblem(api.Gone, "cluster "+have.Name+" was deleted at "+have.Ended.UTC().Format(time.RFC3339))
	shown := api.ClusterOf(have)
	p.Cluster = &shown
	return p
}

// answerCluster answers with a cluster.
func answerCluster(c Call, status int, have cluster.Cluster) error {
	return c.tagged(status, have.Generation, api.ClusterOf(have))
}

// ordered answers for a recorded order. The order is complete when the cluster is settled.
func ordered(c Call, have cluster.Cluster) error {
	c.Log.Done()
	return answerCluster(c, http.StatusAccepted, have)
}

func listClusters(c Call) error {
	ctx, cancel := c.Brief()
	defer cancel()
	all, err := c.Cloud.Clusters.List(ctx, c.Given, cluster.Filter{State: cluster.State(c.Query.Get("state")),
		Appliance: c.Query.Get("appliance"), Site: c.Query.Get("site")})
	if err != nil {
		return err
	}
	list := api.ClusterList{Clusters: []api.Cluster{}}
	for _, have := range all {
		if !c.Scope.Sees(have.Project) {
			continue
		}
		list.Clusters = append(list.Clusters, api.ClusterOf(have))
	}
	return c.answer(http.StatusOK, list)
}

func createCluster(c Call) error {
	var given api.ClusterRequest
	if err := c.Body(&given); err != nil {
		return err
	}
	c.about(c.Project, actions.Cluster, string(given.ID), given.Name)
	ctx, cancel := c.Brief()
	defer cancel()
	made, err := c.Cloud.Clusters.Create(ctx, given.Plain(c.Project, c.Caller.User))
	if err != nil {
		return refused(err)
	}
	have := made.Cluster
	c.about(have.Project, actions.Cluster, string(have.ID), have.Name)
	c.Log.Done() // independently of how the wait ends
	if have, err = waited(c, have); err != nil {
		return err
	}
	document := api.ClusterOf(have)
	document.Reused = made.Reused
	status := http.StatusAccepted
	switch {
	case made.Reused:
		status = http.StatusOK
	case have.State == cluster.Ready:
		status = http.StatusCreated
	}
	c.W.Header().Set("Location", "/v1/clusters/"+string(have.ID))
	return c.tagged(status, have.Generation, document)
}

// refused returns the reason why a cluster was not created or enlarged.
func refused(err error) error {
	if why, ok := errors.AsType[*cluster.ChoiceError](err); ok {
		p := api.NewProblem(api.NoCapacity, why.Error())
		p.Why = append([]cluster.Dropped{}, why.Dropped...)
		return p
	}
	if is, ok := errors.AsType[*cluster.TakenError](err); ok && is.What == "id" {
		return api.NewProblem(api.UUIDReused, err.Error())
	} else if ok {
		return api.NewProblem(api.NameTaken, err.Error())
	}
	return err
}

func explainCluster(c Call) error {
	var given api.ClusterRequest
	if err := c.Body(&given); err != nil {
		return err
	}
	ctx, cancel := c.Brief()
	defer cancel()
	why, err := c.Cloud.Clusters.Explain(ctx, given.Plain(c.Project, c.Caller.User))
	if err != nil {
		return err
	}
	why.Candidates = append([]cluster.Choice{}, why.Candidates...)
	why.Dropped = append([]cluster.Dropped{}, why.Dropped...)
	return c.answer(http.StatusOK, why)
}

// waited returns a cluster after the wait that the request asks for.
func waited(c Call, have cluster.Cluster) (cluster.Cluster, error) {
	seconds, err := strconv.Atoi(c.Query.Get("wait")) // checked by the document
	if err != nil {
		return have, nil
	}
	lasting, end := c.Lasting()
	defer end()
	ctx, cancel := context.WithTimeout(lasting, time.Duration(seconds)*time.Second)
	defer cancel()
	now, err := c.Cloud.Clusters.Wait(ctx, have.Project, string(have.ID), nil)
	switch {
	case err == nil:
		return now, nil
	case c.R.Context().Err() == nil && lasting.Err() != nil:
		return have, api.NewProblem(api.Unauthenticated, "the credentials count no more")
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		brief, cancel := c.Brief()
		defer cancel()
		return c.Cloud.Clusters.Find(brief, have.Project, string(have.ID))
	}
	return have, err
}

func getCluster(c Call) error {
	ctx, cancel := c.Brief()
	defer cancel()
	have, err := living(ctx, c)
	if err != nil {
		return err
	}
	if have, err = waited(c, have); err != nil {
		return err
	}
	if have.State == cluster.Deleted {
		return gone(have)
	}
	return answerCluster(c, http.StatusOK, have)
}

func changeCluster(c Call) error {
	var given api.ClusterChange
	if err := c.Body(&given); err != nil {
		return err
	}
	base, err := api.Match(c.R.Header)
	if err != nil {
		return err
	}
	ctx, cancel := c.Brief()
	defer cancel()
	have, err := living(ctx, c)
	if err != nil {
		return err
	}
	now, err := c.Cloud.Clusters.Change(ctx, have.Project, string(have.ID), given.Plain(), base)
	if err != nil {
		return changed(ctx, c, have, base, refused(err))
	}
	if !now.Settled() {
		return ordered(c, now)
	}
	return answerCluster(c, http.StatusOK, now)
}

// changed distinguishes a changed generation from a state that does not permit the operation.
func changed(ctx context.Context, c Call, have cluster.Cluster, base *int64, err error) error {
	if base == nil || !errors.Is(err, croft.Conflict) {
		return err
	}
	now, failed := c.Cloud.Clusters.Find(ctx, have.Project, string(have.ID))
	if failed != nil || now.Generation == *base {
		return err
	}
	return mismatch(err, base)
}

func deleteCluster(c Call) error {
	ctx, cancel := c.Brief()
	defer cancel()
	have, err := living(ctx, c)
	if err != nil {
		return err
	}
	if (c.flag("force") || c.flag("abandon")) && have.User != c.Caller.User && !c.Caller.Operator() &&
		!c.Caller.Has(access.ProjectAdmin) {
		return api.NewProblem(api.ForbiddenVerb, "cluster "+have.Name+" is "+have.User+"'s: only "+have.User+
			" and admins of the project may delete it by force; ask one of them")
	}
	now, err := c.Cloud.Clusters.Delete(ctx, have.Project, string(have.ID), cluster.Removal{User: c.Caller.User,
		Force: c.flag("force"), Abandon: c.flag("abandon")})
	if err != nil {
		return used(err)
	}
	return ordered(c, now)
}

func listClusterEvents(c Call) error {
	ctx, cancel := c.Brief()
	defer cancel()
	have, err := found(ctx, c)
	if err != nil {
		return err
	}
	all, err := c.Cloud.Clusters.Events(ctx, have.Project, string(have.ID))
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, api.ClusterEventList{Events: append([]cluster.Event{}, all...)})
}

func addClusterHost(c Call) error {
	ctx, cancel := c.Brief()
	defer cancel()
	have, err := living(ctx, c)
	if err != nil {
		return err
	}
	now, err := c.Cloud.Clusters.AddHost(ctx, have.Project, string(have.ID))
	if err != nil {
		return refused(err)
	}
	return ordered(c, now)
}

func removeClusterHost(c Call) error {
	ctx, cancel := c.Brief()
	defer cancel()
	have, err := living(ctx, c)
	if err != nil {
		return err
	}
	now, err := c.Cloud.Clusters.RemoveHost(ctx, have.Project, string(have.ID), c.R.PathValue("host"))
	if err != nil {
		return err
	}
	return ordered(c, now)
}

func endUse(c Call) error {
	ctx, cancel := c.Brief()
	defer cancel()
	have, err := living(ctx, c)
	if err != nil {
		return err
	}
	use := cluster.UseID(c.R.PathValue("use"))
	if _, err = c.Cloud.Clusters.EndUse(ctx, have.Project, string(have.ID), use); err != nil {
		return err
	}
	return c.nothing()
}

// makeAccount answers with the account of the caller; it returns no other user's account.
func makeAccount(c Call) error {
	ctx, cancel := c.Brief()
	defer cancel()
	have, err := living(ctx, c)
	if err != nil {
		return err
	}
	login, err := c.Cloud.Clusters.Account(ctx, have.Project, string(have.ID), c.Caller.User)
	if err != nil {
		return told(err)
	}
	status := http.StatusOK
	if login.Made {
		status = http.StatusCreated
	}
	c.W.Header().Set("Cache-Control", "no-store")
	return c.answer(status, api.ClusterAccount{Username: login.Username, Password: login.Password.Reveal()})
}

// readOutput answers with an output of a cluster of the caller. It is not a GET, so that each read is in the action
// log.
func readOutput(c Call) error {
	ctx, cancel := c.Brief()
	defer cancel()
	have, err := living(ctx, c)
	if err != nil {
		return err
	}
	if have.User != c.Caller.User {
		return api.NewProblem(api.ForbiddenVerb, "cluster "+have.Name+" is "+have.User+
			"'s, who alone reads its secret outputs")
	}
	o, err := c.Cloud.Clusters.Output(ctx, have.Project, string(have.ID), c.Caller.User, c.R.PathValue("output"))
	if err != nil {
		return told(err)
	}
	c.W.Header().Set("Cache-Control", "no-store")
	return c.answer(http.StatusOK, api.ClusterOutput{Name: o.Name, Value: o.Value, Secret: o.Secret})
}

func removeAccount(c Call) error {
	ctx, cancel := c.Brief()
	defer cancel()
	have, err := living(ctx, c)
	if err != nil {
		return err
	}
	if err := c.Cloud.Clusters.RemoveAccount(ctx, have.Project, string(have.ID), c.Caller.User); err != nil {
		return err
	}
	return c.nothing()
}

// told is the answer when a site, or a machine there, does not respond. The caller may know this, unlike errors inside
// the cloud.
func told(err error) error {
	if away, ok := errors.AsType[*cluster.AwayError](err); ok {
		return api.NewProblem(api.BackendDown, away.Error())
	}
	if errors.Is(err, croft.Denied) { // by the site: the caller has permission
		return api.NewProblem(api.BadRequest, err.Error())
	}
	return err
}
