package control

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

// foundCluster returns the cluster that the path names, if the caller may do the operation on it. It returns a deleted
// cluster only for operations that permit it.
func foundCluster(ctx context.Context, c *call) (cluster.Cluster, error) {
	name := c.r.PathValue("id")
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
func livingCluster(ctx context.Context, c *call) (cluster.Cluster, error) {
	have, err := foundCluster(ctx, c)
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

// answerCluster answers with a cluster.
func answerCluster(c *call, status int, have cluster.Cluster) error {
	return c.tagged(status, have.Generation, api.ClusterOf(have))
}

// orderedCluster answers for a recorded order. The order is complete when the cluster is settled.
func orderedCluster(c *call, have cluster.Cluster) error {
	c.action.record(c, actions.Done)
	return answerCluster(c, http.StatusAccepted, have)
}

func listClusters(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	all, err := c.Cloud.Clusters.List(ctx, c.project, cluster.Filter{State: cluster.State(c.query.Get("state")),
		Appliance: c.query.Get("appliance"), Site: c.query.Get("site")})
	if err != nil {
		return err
	}
	list := api.ClusterList{Clusters: []api.Cluster{}}
	for _, have := range all {
		if !c.scope.Sees(have.Project) {
			continue
		}
		list.Clusters = append(list.Clusters, api.ClusterOf(have))
	}
	return c.answer(http.StatusOK, list)
}

func createCluster(c *call) error {
	var given api.ClusterRequest
	if err := c.body(&given); err != nil {
		return err
	}
	c.regarding(c.home(), actions.Cluster, string(given.ID), given.Name)
	ctx, cancel := c.brief()
	defer cancel()
	made, err := c.Cloud.Clusters.Create(ctx, given.Plain(c.home(), c.caller.User))
	if err != nil {
		return notPlaced(err)
	}
	have := made.Cluster
	c.regarding(have.Project, actions.Cluster, string(have.ID), have.Name)
	c.action.record(c, actions.Done) // independently of how the wait ends
	if have, err = waitedForCluster(c, have); err != nil {
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
	c.w.Header().Set("Location", "/v1/clusters/"+string(have.ID))
	return c.tagged(status, have.Generation, document)
}

// notPlaced returns the reason why a cluster was not created or enlarged.
func notPlaced(err error) error {
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

func explainCluster(c *call) error {
	var given api.ClusterRequest
	if err := c.body(&given); err != nil {
		return err
	}
	ctx, cancel := c.brief()
	defer cancel()
	why, err := c.Cloud.Clusters.Explain(ctx, given.Plain(c.home(), c.caller.User))
	if err != nil {
		return err
	}
	why.Candidates = append([]cluster.Choice{}, why.Candidates...)
	why.Dropped = append([]cluster.Dropped{}, why.Dropped...)
	return c.answer(http.StatusOK, why)
}

// waitedForCluster returns a cluster after the wait that the request asks for.
func waitedForCluster(c *call, have cluster.Cluster) (cluster.Cluster, error) {
	seconds, err := strconv.Atoi(c.query.Get("wait")) // checked by the document
	if err != nil {
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
		return have, api.NewProblem(api.Unauthenticated, "the credentials count no more")
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		brief, cancel := c.brief()
		defer cancel()
		return c.Cloud.Clusters.Find(brief, have.Project, string(have.ID))
	}
	return have, err
}

func getCluster(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	have, err := livingCluster(ctx, c)
	if err != nil {
		return err
	}
	if have, err = waitedForCluster(c, have); err != nil {
		return err
	}
	if have.State == cluster.Deleted {
		return goneCluster(have)
	}
	return answerCluster(c, http.StatusOK, have)
}

func changeCluster(c *call) error {
	var given api.ClusterChange
	if err := c.body(&given); err != nil {
		return err
	}
	base, err := api.Match(c.r.Header)
	if err != nil {
		return err
	}
	ctx, cancel := c.brief()
	defer cancel()
	have, err := livingCluster(ctx, c)
	if err != nil {
		return err
	}
	now, err := c.Cloud.Clusters.Change(ctx, have.Project, string(have.ID), given.Plain(), base)
	if err != nil {
		return clusterChanged(ctx, c, have, base, notPlaced(err))
	}
	if !now.Settled() {
		return orderedCluster(c, now)
	}
	return answerCluster(c, http.StatusOK, now)
}

// clusterChanged distinguishes a changed generation from a state that does not permit the operation.
func clusterChanged(ctx context.Context, c *call, have cluster.Cluster, base *int64, err error) error {
	if base == nil || !errors.Is(err, croft.Conflict) {
		return err
	}
	now, failed := c.Cloud.Clusters.Find(ctx, have.Project, string(have.ID))
	if failed != nil || now.Generation == *base {
		return err
	}
	return mismatch(err, base)
}

func deleteCluster(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	have, err := livingCluster(ctx, c)
	if err != nil {
		return err
	}
	if (c.flag("force") || c.flag("abandon")) && have.User != c.caller.User && !c.caller.Operator() &&
		!c.caller.Has(access.ProjectAdmin) {
		return api.NewProblem(api.ForbiddenVerb, "cluster "+have.Name+" is "+have.User+"'s: only "+have.User+
			" and admins of the project may delete it by force; ask one of them")
	}
	now, err := c.Cloud.Clusters.Delete(ctx, have.Project, string(have.ID), cluster.Removal{User: c.caller.User,
		Force: c.flag("force"), Abandon: c.flag("abandon")})
	if err != nil {
		return used(err)
	}
	return orderedCluster(c, now)
}

func listClusterEvents(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	have, err := foundCluster(ctx, c)
	if err != nil {
		return err
	}
	all, err := c.Cloud.Clusters.Events(ctx, have.Project, string(have.ID))
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, api.ClusterEventList{Events: append([]cluster.Event{}, all...)})
}

func addClusterHost(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	have, err := livingCluster(ctx, c)
	if err != nil {
		return err
	}
	now, err := c.Cloud.Clusters.AddHost(ctx, have.Project, string(have.ID))
	if err != nil {
		return notPlaced(err)
	}
	return orderedCluster(c, now)
}

func removeClusterHost(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	have, err := livingCluster(ctx, c)
	if err != nil {
		return err
	}
	now, err := c.Cloud.Clusters.RemoveHost(ctx, have.Project, string(have.ID), c.r.PathValue("host"))
	if err != nil {
		return err
	}
	return orderedCluster(c, now)
}

func endUse(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	have, err := livingCluster(ctx, c)
	if err != nil {
		return err
	}
	use := cluster.UseID(c.r.PathValue("use"))
	if _, err = c.Cloud.Clusters.EndUse(ctx, have.Project, string(have.ID), use); err != nil {
		return err
	}
	return c.nothing()
}

// makeAccount answers with the account of the caller; it returns no other user's account.
func makeAccount(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	have, err := livingCluster(ctx, c)
	if err != nil {
		return err
	}
	login, err := c.Cloud.Clusters.Account(ctx, have.Project, string(have.ID), c.caller.User)
	if err != nil {
		return fromSite(err)
	}
	status := http.StatusOK
	if login.Made {
		status = http.StatusCreated
	}
	c.w.Header().Set("Cache-Control", "no-store")
	return c.answer(status, api.ClusterAccount{Username: login.Username, Password: login.Password.Reveal()})
}

// readOutput answers with an output of a cluster of the caller. It is not a GET, so that each read is in the action
// log.
func readOutput(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	have, err := livingCluster(ctx, c)
	if err != nil {
		return err
	}
	if have.User != c.caller.User {
		return api.NewProblem(api.ForbiddenVerb, "cluster "+have.Name+" is "+have.User+
			"'s, who alone reads its secret outputs")
	}
	o, err := c.Cloud.Clusters.Output(ctx, have.Project, string(have.ID), c.caller.User, c.r.PathValue("output"))
	if err != nil {
		return fromSite(err)
	}
	c.w.Header().Set("Cache-Control", "no-store")
	return c.answer(http.StatusOK, api.ClusterOutput{Name: o.Name, Value: o.Value, Secret: o.Secret})
}

func removeAccount(c *call) error {
	ctx, cancel := c.brief()
	defer cancel()
	have, err := livingCluster(ctx, c)
	if err != nil {
		return err
	}
	if err := c.Cloud.Clusters.RemoveAccount(ctx, have.Project, string(have.ID), c.caller.User); err != nil {
		return err
	}
	return c.nothing()
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
