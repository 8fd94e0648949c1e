package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"croft"
	"croft/control/actions"
	"croft/control/api"
	"croft/internal/wording"
	"croft/schedule"
	"croft/tenant/objects"
)

// find reads the instance that the path names, if the caller may do the operation on it.
func (c *call) find(ctx context.Context) (croft.Status, error) {
	name := c.r.PathValue("id")
	st, err := c.named(ctx, c.home(), name)
	if errors.Is(err, croft.NotFound) {
		return st, c.hidden("instance", name, err)
	}
	if err != nil {
		return st, err
	}
	project := st.Instance.Project
	if !c.scope.Sees(project) || c.query.Has("project") && project != c.project {
		return croft.Status{}, api.Hidden("instance", name)
	}
	c.action.about(project, actions.Object{Kind: actions.Instance, ID: string(st.Instance.ID), Name: st.Instance.Name})
	return st, c.authorize(project)
}

// named finds an instance by its name in a project, or by its ID in any project: the caller of named checks the
// project.
func (c *call) named(ctx context.Context, project croft.Project, idOrName string) (croft.Status, error) {
	if id, err := croft.ParseInstanceID(idOrName); err == nil {
		return c.Cloud.Instances.FindByID(ctx, id)
	}
	return c.Cloud.Instances.Find(ctx, project, idOrName)
}

func (c *call) listInstances() error {
	return listWanted(c, func(croft.Instance) bool { return true })
}

// listWanted answers with a page of those visible instances for which wanted returns true.
func listWanted(c *call, wanted func(croft.Instance) bool) error {
	ctx, cancel := c.brief()
	defer cancel()
	only, err := chosen(ctx, c)
	if err != nil {
		return err
	}
	read := pageOfAll
	if c.project != "" {
		read = pageOfProject
	}
	all, more, err := read(ctx, c, c.query.Get("after"), limit(c), func(inst croft.Instance) bool {
		return c.scope.Sees(inst.Project) && (only == nil || only[inst.ID]) && wanted(inst)
	})
	if err != nil {
		return err
	}
	page := api.InstanceList{Instances: []api.Instance{}}
	for _, st := range all {
		page.Instances = append(page.Instances, c.instance(st))
	}
	if more {
		last := all[len(all)-1].Instance
		page.Next = last.Name + "/" + string(last.ID)
	}
	return c.answer(http.StatusOK, page)
}

// pageOfProject reads a page of the instances of a project for which wanted returns true. Names are unique in it.
func pageOfProject(ctx context.Context, c *call, after string, limit int, wanted func(croft.Instance) bool) (
	all []croft.Status, more bool, err error) {
	size := limit + 1
	if c.query.Has("filter") || c.operation.ID == "listClaims" {
		size = max(size, pageLength)
	}
	after, _, _ = strings.Cut(after, "/") // a name has no slash
	for more = true; more && len(all) <= limit; {
		var page []croft.Status
		if page, more, err = c.Cloud.Instances.Page(ctx, c.project, after, size); err != nil {
			return nil, false, err
		}
		for _, st := range page {
			after = st.Instance.Name
			if wanted(st.Instance) {
				all = append(all, st)
			}
		}
		more = more && len(page) > 0
	}
	return all[:min(limit, len(all))], len(all) > limit, nil
}

// pageOfAll reads a page of the instances of all projects for which wanted returns true.
func pageOfAll(ctx context.Context, c *call, after string, limit int, wanted func(croft.Instance) bool) (
	all []croft.Status, more bool, err error) {
	if all, err = c.Cloud.Instances.List(ctx, ""); err != nil {
		return nil, false, err
	}
	name, id, exact := strings.Cut(after, "/") // a name has no slash
	all = slices.DeleteFunc(all, func(st croft.Status) bool {
		order := cmp.Compare(st.Instance.Name, name)
		return order < 0 || order == 0 && (!exact || string(st.Instance.ID) <= id) || !wanted(st.Instance)
	})
	slices.SortFunc(all, func(a, b croft.Status) int {
		return cmp.Or(cmp.Compare(a.Instance.Name, b.Instance.Name), cmp.Compare(a.Instance.ID, b.Instance.ID))
	})
	return all[:min(limit, len(all))], len(all) > limit, nil
}

// chosen returns the instances that match the filters of the request; nil: the request has no filters.
func chosen(ctx context.Context, c *call) (map[croft.InstanceID]bool, error) {
	f, err := filter(c)
	if err != nil || len(f) == 0 {
		return nil, err
	}
	all, err := c.Objects.List(ctx, c.caller, listed(c), objects.Instance, f)
	if err != nil {
		return nil, err
	}
	chosen := map[croft.InstanceID]bool{}
	for _, o := range all {
		chosen[croft.InstanceID(o.ID)] = true
	}
	return chosen, nil
}

func (c *call) getInstance() error {
	ctx, cancel := c.brief()
	defer cancel()
	st, err := c.find(ctx)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, c.instance(st))
}

// request reads the request for an instance from the body.
func (c *call) request() (r schedule.Request, err error) {
	var given api.InstanceRequest
	if err := c.body(&given); err != nil {
		return r, err
	}
	return c.requested(given)
}

// requested converts a body into a request.
func (c *call) requested(given api.InstanceRequest) (r schedule.Request, err error) {
	r = schedule.Request{ID: given.ID, Project: c.home(), Name: given.Name, Keys: given.Keys, UserData: given.UserData,
		Metadata: given.Metadata, IMDS: given.IMDS, Tags: given.Tags, Restart: given.Restart, Networks: given.Networks,
		Open: given.Open, Ephemeral: given.Ephemeral, Affinities: given.Affinities}
	if r.ID != "" {
		if r.ID, err = croft.ParseInstanceID(string(r.ID)); err != nil {
			return r, err
		}
	}
	if r.Query, err = schedule.ParseQuery(given.Query); err != nil {
		return r, err
	}
	if r.Query.NamesAggregates() && !c.caller.Operator() {
		return r, api.NewProblem(api.PropertyForbidden, "only operators may give member_of in a query, because it "+
			"names places by UUID: name a public aggregate with in")
	}
	if given.Policy != "" {
		if r.Policy, err = schedule.PolicyNamed(given.Policy); err != nil {
			return r, err
		}
	}
	r.Expires = time.Duration(given.Expires) * time.Second
	if r.Near, err = croft.ParseNears(given.Near, given.Far, given.Distance); err != nil {
		return r, err
	}
	if err := checkNear(c, r); err != nil {
		return r, err
	}
	for _, text := range given.In {
		b, err := croft.ParseBound(text)
		if err != nil {
			return r, err
		}
		r.In = append(r.In, b)
	}
	r.Where, r.WhereNot = given.Where, given.WhereNot
	if err := checkFilters(c, &r); err != nil {
		return r, err
	}
	if err := checkBounds(c, slices.Concat(r.Query.In, r.In)); err != nil {
		return r, err
	}
	if given.Image != "" { // the document says where an image is required
		r.Image, r.Public, err = c.image(given.Image)
	}
	return r, err
}

// keepInstance changes the expiry of an instance.
func keepInstance(c *call) error {
	var given api.Expiry
	if err := c.body(&given); err != nil {
		return err
	}
	return c.change(func(ctx context.Context, project croft.Project, id string) (croft.Instance, error) {
		return c.Cloud.Changes.Keep(ctx, project, id, time.Duration(given.Expires)*time.Second)
	})
}

func (c *call) createInstance() error {
	r, err := c.request()
	if err != nil {
		return err
	}
	c.action.about(r.Project, actions.Object{Kind: actions.Instance, ID: string(r.ID), Name: r.Name})
	ctx, cancel := c.brief()
	defer cancel()
	d, err := made(ctx, c, r)
	if err != nil {
		return err
	}
	c.w.Header().Set("Location", "/v1/instances/"+string(d.Instance.ID))
	if d.Host.ID != "" && !c.query.Has("wait") { // just ordered, and the request does not wait
		st := croft.Status{Instance: d.Instance, Host: &d.Host}
		return c.answer(http.StatusAccepted, c.instance(st))
	}
	return c.ordered(d.Instance)
}

// made creates the requested instance. If the identical request was made before, it returns that instance, in a
// decision without a host.
func made(ctx context.Context, c *call, r schedule.Request) (schedule.Decision, error) {
	d, err := c.Cloud.Requests.Request(ctx, r)
	// The identical earlier request may have used up the quota or the last capacity itself.
	full := errors.Is(err, croft.OverQuota) || errors.Is(err, croft.NoCapacity)
	if errors.Is(err, croft.Conflict) || r.ID != "" && full {
		d.Host = croft.Host{}
		d.Instance, err = c.taken(ctx, r, err)
	}
	return d, err
}

// taken returns the instance of an identical earlier request, or the conflict that prevents this one.
func (c *call) taken(ctx context.Context, r schedule.Request, refused error) (croft.Instance, error) {
	if r.ID != "" {
		st, err := c.Cloud.Instances.FindByID(ctx, r.ID)
		switch {
		case err == nil && c.scope.Sees(st.Instance.Project) && r.Wants(st.Instance):
			return st.Instance, nil
		case err == nil:
			return croft.Instance{}, api.NewProblem(api.UUIDReused,
				"the UUID "+string(r.ID)+" is taken by another instance: choose another one, or none")
		}
	}
	if r.Name != "" {
		if st, err := c.Cloud.Instances.Find(ctx, r.Project, r.Name); err == nil {
			return croft.Instance{}, api.NewProblem(
				api.NameTaken,
				fmt.Sprintf("schedule %s: the name %[1]s is taken by "+
					"instance %s; choose another or destroy that one", r.Name, st.Instance.ID),
			)
		}
	}
	return croft.Instance{}, refused
}

func (c *call) explainRequest() error {
	r, err := c.request()
	if err != nil {
		return err
	}
	ctx, cancel := c.brief()
	defer cancel()
	why, err := c.Cloud.Requests.Explain(ctx, r)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, c.explanation(why))
}

func (c *call) startInstance() error   { return c.change(c.Cloud.Changes.Start) }
func (c *call) stopInstance() error    { return c.change(c.Cloud.Changes.Stop) }
func (c *call) rebootInstance() error  { return c.change(c.Cloud.Changes.Reboot) }
func (c *call) rebuildInstance() error { return c.change(c.Cloud.Changes.Rebuild) }

// recreateInstance schedules a lost instance again. It has no time limit, because it searches for hosts and claims on
// them.
func (c *call) recreateInstance() error {
	ctx, end := c.lasting()
	defer end()
	st, err := c.find(ctx)
	if err != nil {
		return err
	}
	inst, err := c.Cloud.Changes.Recreate(ctx, st.Instance.Project, string(st.Instance.ID))
	if err != nil {
		return err
	}
	return c.ordered(inst)
}

// change orders a change of the instance that the path names.
func (c *call) change(do func(context.Context, croft.Project, string) (croft.Instance, error)) error {
	ctx, cancel := c.brief()
	defer cancel()
	st, err := c.find(ctx)
	if err != nil {
		return err
	}
	inst, err := do(ctx, st.Instance.Project, string(st.Instance.ID))
	if err != nil {
		return err
	}
	return c.ordered(inst)
}

func (c *call) destroyInstance() error {
	ctx, cancel := c.brief()
	defer cancel()
	force := c.flag("force")
	if force && !c.caller.Operator() {
		return api.NewProblem(api.ForbiddenVerb, "only operators may use force: a silent host may still run the guest")
	}
	st, err := c.find(ctx)
	if err != nil {
		return err
	}
	d, err := c.Cloud.Changes.Destroy(ctx, st.Instance.Project, string(st.Instance.ID), force)
	if err != nil {
		return err
	}
	if d.Gone {
		return c.answer(http.StatusOK, c.instance(croft.Status{Instance: d.Instance}))
	}
	return c.ordered(d.Instance)
}

const (
	defaultWait = time.Minute
	longestWait = 10 * time.Minute
)

var goals = map[string]schedule.Goal{
	"running": schedule.Running, "ready": schedule.Ready, "stopped": schedule.Stopped, "gone": schedule.Gone,
}

// patience parses the parameter timeout: how long the request wants to wait. Error texts start with but.
func patience(text, but string) (time.Duration, error) {
	if text == "" {
		return defaultWait, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 || d > longestWait {
		return 0, api.NewProblem(api.BadQuery, fmt.Sprintf("%stimeout is no duration such as 30s, of %s at most", but,
			wording.Duration(longestWait)))
	}
	return d, nil
}

// ordered answers for a change that has been ordered, after the wait that the request asks for.
func (c *call) ordered(inst croft.Instance) error {
	c.action.about(inst.Project, actions.Object{Kind: actions.Instance, ID: string(inst.ID), Name: inst.Name})
	c.action.record(c, actions.Done) // independently of how the wait ends
	status := http.StatusAccepted
	if goal := goals[c.query.Get("wait")]; goal != nil {
		patience, err := patience(c.query.Get("timeout"), "it is ordered, but ")
		if err != nil {
			return err
		}
		known, end := c.lasting()
		defer end()
		ctx, cancel := context.WithTimeout(known, patience)
		defer cancel()
		err = c.Cloud.Instances.Wait(ctx, inst, goal, nil)
		switch {
		case err == nil:
			status = http.StatusOK
		case known.Err() != nil && c.r.Context().Err() == nil:
			return errRevoked
		case !errors.Is(ctx.Err(), context.DeadlineExceeded):
			return c.failed(inst, err)
		}
	}
	ctx, cancel := c.brief()
	defer cancel()
	st, err := c.Cloud.Instances.Find(ctx, inst.Project, string(inst.ID))
	if errors.Is(err, croft.NotFound) {
		st, err = croft.Status{Instance: inst}, nil // it is gone by now
	}
	if err != nil {
		return err
	}
	return c.answer(status, c.instance(st))
}

// failed returns the answer about an instance that will never reach the state that the request waits for.
func (c *call) failed(inst croft.Instance, err error) error {
	if croft.KindOf(err) == croft.Unavailable {
		return err
	}
	if _, byHost := errors.AsType[*schedule.Failure](err); !byHost {
		return api.NewProblem(api.BadState, err.Error())
	}
	ctx, cancel := c.brief()
	defer cancel()
	st, found := c.Cloud.Instances.Find(ctx, inst.Project, string(inst.ID))
	if found != nil || st.Observation == nil {
		return api.NewProblem(api.BadState, "instance "+inst.Name+" failed, and was changed since")
	}
	return api.NewProblem(api.BadState, "instance "+inst.Name+" failed: "+c.instance(st).Observation.Error)
}
