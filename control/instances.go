package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"croft"
	"croft/compute/backup"
	"croft/control/actions"
	"croft/control/api"
	"croft/internal/endpoint"
	"croft/internal/redact"
	"croft/schedule"
	"croft/tenant/access"
	"croft/tenant/objects"
)

var instanceOperations = noun{Tag: "instances",
	Description: "Virtual machines, named by UUID or by their name in the project. A change answers 202 when it " +
		"is ordered; with `wait` it waits until the host has done it, and answers 200. A wait that runs out of " +
		"time answers 202.",
	Home: true,
	Operations: []Operation{
		do(Operation{ID: "listInstances", At: "GET /v1/instances", May: access.Reads,
			Summary:     "List instances",
			Description: "In the order of their names. User-data is left out."},
			func(ctx context.Context, c *call, in api.InstanceFilter) (api.InstanceList, error) {
				return listWanted(ctx, c, in, func(croft.Instance) bool { return true })
			}),
		do(Operation{ID: "createInstance", Also: accepted, At: "POST /v1/instances", May: access.Changes,
			Summary: "Create an instance",
			Description: "Claims resources on a host with room and orders the instance there. A caller that " +
				"chooses the UUID may repeat the request: the same body for the same project gets the same " +
				"instance, another one is refused (409 uuid_reused). 409 no_capacity explains what each host " +
				"lacks."},
			createInstance),
		do(Operation{ID: "getInstance", At: "GET /v1/instances/{id}", May: access.Reads,
			Summary: "Get an instance"}, getInstance),
		do(Operation{ID: "destroyInstance", Also: accepted, At: "DELETE /v1/instances/{id}", May: access.Changes,
			Summary: "Destroy an instance",
			Description: "Removes it with its disks, addresses, claim and name. Repeating it is no error while it " +
				"goes. An instance that has snapshots is refused, unless `snapshots` is true. 409 bad_state: it is protected."},
			destroyInstance),
		do(Operation{ID: "startInstance", Also: accepted, At: "POST /v1/instances/{id}/start", May: access.Changes,
			Summary: "Start a stopped or failed instance"},
			func(ctx context.Context, c *call, in api.InstanceChange) (api.Instance, error) {
				return c.change(ctx, in.Waiting, c.Cloud.Scheduler.Start)
			}),
		do(Operation{ID: "stopInstance", Also: accepted, At: "POST /v1/instances/{id}/stop", May: access.Changes,
			Summary:     "Shut an instance down",
			Description: "It keeps its claim and its disk. With `force` its power is cut at once, also while it shuts down."},
			func(ctx context.Context, c *call, in api.InstanceStop) (api.Instance, error) {
				if in.Force {
					return c.change(ctx, in.Waiting, c.Cloud.Scheduler.PowerOff)
				}
				return c.change(ctx, in.Waiting, c.Cloud.Scheduler.Stop)
			}),
		do(Operation{ID: "rebootInstance", Also: accepted, At: "POST /v1/instances/{id}/reboot", May: access.Changes,
			Summary: "Shut an instance down and boot it"},
			func(ctx context.Context, c *call, in api.InstanceChange) (api.Instance, error) {
				return c.change(ctx, in.Waiting, c.Cloud.Scheduler.Reboot)
			}),
		do(Operation{ID: "ejectInstance", Also: accepted, At: "POST /v1/instances/{id}/eject", May: access.Changes,
			Summary: "Empty the CD drive of an instance",
			Description: "For good: also when it is rebuilt. It runs on, or stays off. Repeating it has the same effect. " +
				"409 bad_state: it has no CD drive."},
			func(ctx context.Context, c *call, in api.InstanceChange) (api.Instance, error) {
				return c.change(ctx, in.Waiting, c.Cloud.Scheduler.Eject)
			}),
		do(Operation{ID: "rebuildInstance", Also: accepted, At: "POST /v1/instances/{id}/rebuild", May: access.Changes,
			Summary:     "Replace the disk by a new one from the image",
			Description: "409 bad_state: it is protected."},
			func(ctx context.Context, c *call, in api.InstanceChange) (api.Instance, error) {
				st, err := c.find(ctx)
				if err == nil {
					err = c.Cloud.Volumes.WithoutSnapshots(ctx, st.Instance, "remove them first")
				}
				if err == nil {
					err = c.hasImage(ctx, st.Instance)
				}
				if err != nil {
					return api.Instance{}, err
				}
				return c.change(ctx, in.Waiting, c.Cloud.Scheduler.Rebuild)
			}),
		do(Operation{ID: "resizeInstance", Also: accepted, At: "POST /v1/instances/{id}/resize", May: access.Changes,
			Long:    true, // it claims
			Summary: "Change the size of an instance",
			Description: "The new amounts are claimed on its host before they are ordered there. Processors and " +
				"memory can be changed while it is stopped; the disk can become larger at any time, and never " +
				"smaller. Repeating the request has the same effect. 409 bad_state: it runs, or another request " +
				"changes it. 409 no_capacity: its host has no room; the detail has the largest amounts that fit."},
			resizeInstance),
		do(Operation{ID: "recreateInstance", At: "POST /v1/instances/{id}/recreate", Also: accepted,
			May:     access.Changes,
			Long:    true, // it searches for hosts and claims on them
			Summary: "Schedule a lost instance again",
			Description: "An instance is lost when an operator declares its host gone for good. It gets a host " +
				"with room and a new disk from its image, and keeps its name, UUID, spec and user-data. 409 " +
				"bad_state: it is not lost. 409 no_capacity: it stays lost."},
			func(ctx context.Context, c *call, in api.InstanceChange) (api.Instance, error) {
				return c.change(ctx, in.Waiting, c.Cloud.Scheduler.Recreate)
			}),
		do(Operation{ID: "moveInstance", At: "POST /v1/instances/{id}/move", Also: accepted, May: access.Operates,
			Long:    true, // it searches for hosts and claims on them
			Summary: "Move an instance to another host with its disk",
			Description: "It is stopped when its new host is ready to copy the disk, and started there if it ran. Its old " +
				"host removes its copy when it runs. Until the disk is complete on the new host, any failure starts it on " +
				"its old one, and `unmoved` says why. Repeating it is no error while it moves. 409 conflict: it cannot be " +
				"moved, or moves to another host. 409 no_capacity: no host has room."}, moveInstance),
		do(Operation{ID: "cancelMove", At: "DELETE /v1/instances/{id}/move", Also: accepted, May: access.Operates,
			Summary:     "End the move of an instance whose disk is still being copied",
			Description: "It stays on its host, and runs there again if it did before."}, cancelMove),
		do(Operation{ID: "keepInstance", At: "PUT /v1/instances/{id}/expiry", May: access.Changes,
			Status:  http.StatusAccepted,
			Summary: "Change when an instance expires, and is destroyed"},
			func(ctx context.Context, c *call, in api.Expiry) (api.Instance, error) {
				keep := func(ctx context.Context, p croft.Project, id string) (croft.Instance, error) {
					return c.Cloud.Scheduler.Keep(ctx, p, id, time.Duration(in.Expires)*time.Second, nil)
				}
				return c.change(ctx, api.Waiting{}, keep)
			}),
		do(Operation{ID: "changeInstance", At: "PATCH /v1/instances/{id}", May: access.Changes,
			Summary: "Change labels of an instance, when it expires, or whether it is protected",
			Description: "Labels that the body does not name stay; null removes one. Labels are changed before the " +
				"expiry and the protection. Repeating the request has the same effect."}, changeInstance),
		stream(Operation{ID: "watchInstance", At: "GET /v1/instances/{id}/events", May: access.Reads, Stream: true,
			Media: eventStream, Events: Events{"message": reflect.TypeFor[api.Instance]()},
			Summary: "Follow an instance",
			Description: "Server-sent events. The data of each is the schema Instance: first as it is now, then " +
				"after every change. An event of the type `gone`, without data, is the last one."},
			watchInstance),
		stream(Operation{ID: "getInstanceLog", At: "GET /v1/instances/{id}/log", May: access.Reads, Media: bytesMedia,
			Summary: "Read what the guest wrote to its serial console"},
			getInstanceLog),
		do(Operation{ID: "getInstanceUsage", At: "GET /v1/instances/{id}/usage", May: access.Reads,
			Summary: "Read what an instance used in the last hour and day",
			Description: "Averages, which its host measures and keeps: of each minute of the last hour, and of each ten " +
				"minutes of the last day. Intervals in which the guest was off are missing. They end with the instance, and " +
				"restart on another host. 404: nothing is measured yet. 503: the host does not answer."}, instanceUsage),
		stream(Operation{ID: "attachConsole", At: "GET /v1/instances/{id}/console", May: access.Changes, Stream: true,
			Log: always, Fails: []int{http.StatusConflict}, Status: http.StatusSwitchingProtocols,
			Summary:     "Attach to the serial console over WebSocket",
			Description: "Binary messages both ways. One caller at a time; a second one gets 409 in_use, unless it takes over."},
			attachConsole),
		stream(Operation{ID: "getScreen", At: "GET /v1/instances/{id}/screen", May: access.Reads, Media: pngMedia,
			Fails: []int{http.StatusConflict}, Summary: "Read what the screen of the guest shows, as a PNG",
			Description: "409 bad_state: it has no screen, or is off."},
			getScreen),
		stream(Operation{ID: "attachScreen", At: "GET /v1/instances/{id}/display", May: access.Changes, Stream: true,
			Log: always, Fails: []int{http.StatusConflict}, Status: http.StatusSwitchingProtocols,
			Summary: "Attach to the screen of the guest over WebSocket",
			Description: "The protocol of VNC (RFB, RFC 6143) without a password, in binary messages both ways. One " +
				"caller at a time; a second one gets 409 in_use, unless it takes over. 409 bad_state: it has no screen, or " +
				"is off."},
			attachScreen),
		do(Operation{ID: "runCommand", At: "POST /v1/instances/{id}/exec", May: access.Changes,
			Long:    true, // it has its own time limit
			Summary: "Run a command in the guest",
			Description: "As root, through QEMU's guest agent, which has to run in the guest. The answer comes when the " +
				"command has ended. A guest that has timeout(1) ends the command when its time is over; in another one it " +
				"goes on, and the answer is 503. The action log has neither the command nor what it read and wrote. 409 " +
				"bad_state: the guest is off. 409 in_use: four commands of the guest have not ended. 503: it has no agent, or " +
				"that does not answer; whether the command runs is unknown if the connection to the host breaks."}, runCommand),
		stream(Operation{ID: "forwardPort", At: "GET /v1/instances/{id}/forward", May: access.Changes, Stream: true,
			Log: always, Fails: []int{http.StatusConflict}, Status: http.StatusSwitchingProtocols,
			Summary: "Connect to a TCP port of the guest over WebSocket",
			Description: "Binary messages both ways. The server of the API connects to the instance's own " +
				"address."},
			forwardPort),
		do(Operation{ID: "discoverTargets", At: "GET /v1/sd/prometheus", May: access.Reads,
			Summary: "List instances as targets of Prometheus",
			Description: "For `http_sd_configs` of Prometheus: one target for each instance that has an address and " +
				"runs, or is on a silent host and may run, with what the caller may know about it in labels that begin with `__meta_croft_`. It " +
				"takes the filters of listInstances, and `port` is the port of all targets."},
			discoverTargets),
		// Changes: like createInstance, since it reveals how full the cloud is
		do(Operation{ID: "explainRequest", At: "POST /v1/candidates", May: access.Changes, Log: never,
			Summary:     "List what fits a request, and what each other host lacks",
			Description: "Claims nothing. For tenants, hosts are numbered instead of named."},
			func(ctx context.Context, c *call, in api.Candidates) (*schedule.Explanation, error) {
				r, err := c.requested(ctx, in.InstanceRequest)
				if err != nil {
					return nil, err
				}
				why, err := c.Cloud.Scheduler.Explain(ctx, r)
				if err != nil {
					return nil, err
				}
				return c.explanation(why), nil
			}),
		stream(Operation{ID: "watchEvents", At: "GET /v1/events", May: access.Reads, Stream: true,
			Fails: []int{http.StatusGone},
			Media: eventStream, Events: Events{"instance": reflect.TypeFor[api.Change]()},
			Summary: "Follow the changes of all instances",
			Description: "Server-sent events of the type `instance`, whose data is the schema Change: the " +
				"instance, as lists show it, at its revision, with `gone` at its end. Changes " +
				"come in the order of their revisions, which is the same at every server. Of several changes at " +
				"one revision, the last alone has an id, which is the revision. A client that connects again with " +
				"`Last-Event-ID` misses nothing; it may get a change twice. 410 compacted, or an event of the " +
				"type `compacted`: the changes since then are forgotten, so list again."},
			watchEvents),
	},
}

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
		return c.Cloud.Scheduler.View.FindByID(ctx, id)
	}
	return c.Cloud.Scheduler.View.Find(ctx, project, idOrName)
}

// listWanted returns a page of those visible instances for which wanted returns true.
func listWanted(ctx context.Context, c *call, in api.InstanceFilter, wanted func(croft.Instance) bool) (
	list api.InstanceList, err error) {
	f, err := filter(in.Filtered)
	if err != nil {
		return list, err
	}
	matches, err := in.Matching(reflect.TypeFor[api.InstanceTerms]())
	if err != nil {
		return list, err
	}
	labels := map[croft.InstanceID]map[string]objects.Value{}
	note := func(all []objects.Object, err error) error {
		for _, o := range all {
			labels[croft.InstanceID(o.ID)] = o.Properties
		}
		return err
	}
	chosenByLabel := len(f) > 0 || in.AboutLabels()
	if chosenByLabel {
		if err := note(c.Objects.List(ctx, c.caller, listed(c), objects.Instance, f)); err != nil {
			return list, err
		}
	}
	show := func(st croft.Status) api.Instance {
		shown := c.listed(st)
		shown.Labels = labels[shown.ID]
		return shown
	}
	read := pageOfAll
	if c.project != "" && matches == nil && len(f) == 0 && cmp.Or(in.Sort, "name") == "name" &&
		c.operation.ID != "listClaims" {
		read = pageOfProject
	}
	in.Limit = cmp.Or(in.Limit, pageLength)
	var of api.InstanceTerms
	all, next, err := read(ctx, c, in, func(st *croft.Status) bool {
		inst := &st.Instance
		_, chosen := labels[inst.ID]
		if !c.scope.Sees(inst.Project) || len(f) > 0 && !chosen || !wanted(*inst) {
			return false
		}
		if matches == nil {
			return true
		}
		of = api.TermsOf(st, in.Terms)
		if !c.caller.Operator() {
			of.Host, of.HostID = "", ""
			if of.Image != "" {
				of.Image = redact.Image(imageFor(&inst.Spec, false))
			}
		}
		of.Labels = labels[of.ID]
		return matches(&of)
	})
	if err != nil {
		return list, err
	}
	if !chosenByLabel {
		var refs []objects.Ref
		for _, st := range all {
			refs = append(refs, objects.Ref{Kind: objects.Instance, Project: st.Instance.Project,
				ID: string(st.Instance.ID)})
		}
		if err := note(c.Objects.Some(ctx, c.caller, objects.Instance, refs)); err != nil {
			return list, err
		}
	}
	list.Instances = []api.Instance{}
	for _, st := range all {
		list.Instances = append(list.Instances, show(st))
	}
	list.Next = next
	return list, nil
}

// discoverTargets lists the instances that the filters choose and that have an address, page by page. One on a silent
// host stays, since its guest may run, and Prometheus is to notice if it does not. Hosts may be wrong or lie about
// addresses, and Prometheus is not to be sent to the cloud itself.
func discoverTargets(ctx context.Context, c *call, in api.Discovery) ([]api.TargetGroup, error) {
	targets, elsewhere := []api.TargetGroup{}, endpoint.Elsewhere()
	f := api.InstanceFilter{InProject: in.InProject, Filtered: in.Filtered, Terms: in.Terms}
	for {
		page, err := listWanted(ctx, c, f, func(croft.Instance) bool { return true })
		if err != nil {
			return nil, err
		}
		for _, i := range page.Instances {
			if i.MayRun() && elsewhere(i.Address) {
				targets = append(targets, i.Target(net.JoinHostPort(i.Address, strconv.Itoa(cmp.Or(in.Port, 9100)))))
			}
		}
		if f.After = page.Next; f.After == "" {
			return targets, nil
		}
	}
}

// pageOfProject reads a page of the instances of a project for which wanted returns true, which are most of them. Names
// are unique in it.
func pageOfProject(ctx context.Context, c *call, in api.InstanceFilter, wanted func(*croft.Status) bool) (
	all []croft.Status, next string, err error) {
	after, _, _ := strings.Cut(in.After, "/") // a name has no slash
	for more := true; more && len(all) <= in.Limit; {
		var page []croft.Status
		if page, more, err = c.Cloud.Instances.Page(ctx, c.project, after, in.Limit+1); err != nil {
			return nil, "", err
		}
		for _, st := range page {
			after = st.Instance.Name
			if wanted(&st) {
				all = append(all, st)
			}
		}
		more = more && len(page) > 0
	}
	if len(all) > in.Limit {
		all = all[:in.Limit]
		next = sorting{}.next(&all[in.Limit-1])
	}
	return all, next, nil
}

// pageOfAll reads a page of the instances for which wanted returns true: it looks for them in the overview of all
// instances, and reads only the found ones.
func pageOfAll(ctx context.Context, c *call, in api.InstanceFilter, wanted func(*croft.Status) bool) (
	all []croft.Status, next string, err error) {
	overview, err := c.Cloud.Instances.Overview(ctx, c.project)
	if err != nil {
		return nil, "", err
	}
	by := sortingOf(in.Sort, c.caller.Operator())
	take, err := by.from(overview, in.After, wanted)
	if err != nil {
		return nil, "", err
	}
	chosen := map[croft.InstanceID]*croft.Status{} // as they were when they were put in order
	st := take()
	for st != nil && len(all) <= in.Limit {
		var found []croft.InstanceID
		for ; st != nil && len(all)+len(found) <= in.Limit; st = take() {
			if wanted(st) {
				found = append(found, st.Instance.ID)
				chosen[st.Instance.ID] = st
			}
		}
		page, err := c.Cloud.Instances.Some(ctx, found)
		if err != nil {
			return nil, "", err
		}
		for i := range page {
			if wanted(&page[i]) {
				all = append(all, page[i])
			}
		}
	}
	if len(all) > in.Limit {
		all = all[:in.Limit]
		next = by.next(chosen[all[in.Limit-1].Instance.ID])
	}
	return all, next, nil
}

// requested converts a body into a request.
func (c *call) requested(ctx context.Context, given api.InstanceRequest) (r schedule.Request, err error) {
	r = schedule.Request{ID: given.ID, Project: c.home(), Name: given.Name, GuestSettings: given.GuestSettings,
		InstanceSettings: given.InstanceSettings, Volumes: given.Volumes, Disks: given.Disks,
		Expires: time.Duration(given.Expires) * time.Second, Protect: given.Protected}
	if r.ID != "" {
		if r.ID, err = croft.ParseInstanceID(string(r.ID)); err != nil {
			return r, err
		}
	}
	if r.Query, r.Size, err = c.queryOf(ctx, given); err != nil {
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
	near, err := croft.ParseNears(given.Near, given.Far, given.Distance)
	if err != nil {
		return r, err
	}
	r.Query.Near = append(r.Query.Near, near...)
	if err := checkNear(c, r); err != nil {
		return r, err
	}
	for _, text := range given.In {
		b, err := croft.ParseBound(text)
		if err != nil {
			return r, err
		}
		r.Query.In = append(r.Query.In, b)
	}
	r.Query.Where = append(r.Query.Where, given.Where...)
	r.Query.WhereNot = append(r.Query.WhereNot, given.WhereNot...)
	if err := checkFilters(c, &r); err != nil {
		return r, err
	}
	if err := checkBounds(c, r.Query.In); err != nil {
		return r, err
	}
	var disk, cd source
	if given.Image != "" {
		if disk, err = c.disk(ctx, given.Image); err != nil {
			return r, err
		}
		r.Named, r.Image, r.Public = catalogName(given.Image), disk.reference, disk.public
	}
	if given.Machine.ISO != "" {
		if r.CD, cd, err = c.iso(ctx, given.Machine.ISO); err != nil {
			return r, err
		}
	}
	r.Machine.Arch, err = archOf(given.Machine.Arch, disk, cd)
	return r, err
}

func getInstance(ctx context.Context, c *call, in api.InstanceShown) (shown api.Instance, err error) {
	if in.Internal && !c.caller.Operator() {
		return shown, api.NewProblem(api.ForbiddenVerb, "only operators may use internal: the records name hosts")
	}
	st, err := c.find(ctx)
	if err != nil {
		return shown, err
	}
	shown = c.instance(st)
	if in.Internal {
		shown.Internal = api.Records(st)
	}
	if st.Instance.State == croft.StateLost {
		if shown.LastBackup, err = c.Cloud.Backups.Newest(ctx, st.Instance); err != nil {
			return shown, err
		}
	}
	if shown.Backup != nil && shown.Backup.State == api.Restoring {
		reports, err := c.reportsOfJobs(ctx)
		if err != nil {
			return shown, err
		}
		shown.Backup.Progress = reports[backup.RestoreJob(st.Instance.ID, st.Instance.Generation)].Progress
	}
	attached, err := c.Cloud.Volumes.AttachedTo(ctx, st.Instance.ID)
	if err != nil {
		return shown, err
	}
	for _, v := range attached {
		if v.Snapshot == nil {
			shown.Volumes = append(shown.Volumes, v.Name)
		}
	}
	labels, err := c.labels(ctx, st.Instance)
	shown.Label(labels)
	return shown, err
}

func changeInstance(ctx context.Context, c *call, in api.InstancePatch) (shown api.Instance, err error) {
	st, err := c.find(ctx)
	if err != nil {
		return shown, err
	}
	inst := st.Instance
	labels, err := c.labels(ctx, inst)
	if err != nil {
		return shown, err
	}
	if !in.Base.Accepts(api.InstanceTag(inst.Revision, labels.Generation)) {
		return shown, mismatch("instance " + inst.Name + " or its labels were changed by another request")
	}
	to, verb := schedule.Amendment{Protected: in.Protected}, "protect"
	if in.Expires != nil {
		to.Life, verb = new(time.Duration(*in.Expires)*time.Second), "keep"
	}
	amends := to != schedule.Amendment{}
	if amends { // before the labels change
		if err := to.Check(inst); err != nil {
			return shown, fmt.Errorf("%s %s: %w", verb, inst.Name, err)
		}
	}
	if change := labelChange(in.Labels, labels.Properties); len(change.Set)+len(change.Remove) > 0 {
		if in.Base.Given() {
			change.Generation = &labels.Generation
		}
		ref := objects.Ref{Kind: objects.Instance, Project: inst.Project, ID: string(inst.ID)}
		if labels, err = c.Objects.Change(ctx, c.caller, c.scope, ref, change); err != nil {
			return shown, err
		}
	}
	if amends {
		var revision *int64
		if in.Base.Given() {
			revision = &inst.Revision
		}
		kept, err := c.Cloud.Scheduler.Amend(ctx, inst.Project, string(inst.ID), verb, to, revision)
		if errors.Is(err, croft.Conflict) && (revision == nil || kept.Revision == *revision) {
			return shown, api.NewProblem(api.BadState, err.Error())
		}
		if err != nil {
			return shown, err
		}
	}
	if st, err = c.Cloud.Scheduler.View.FindByID(ctx, inst.ID); err == nil && schedule.Replaced(inst, st.Instance) {
		err = api.Hidden("instance", in.ID)
	}
	shown = c.instance(st)
	shown.Label(labels)
	return shown, err
}

// labelChange returns the change that makes labels as wanted; nil removes one.
func labelChange(wanted map[string]*objects.Value, have map[string]objects.Value) objects.Change {
	change := objects.Change{Set: map[string]objects.Value{}}
	for key, value := range wanted {
		_, set := have[key]
		switch {
		case value != nil:
			change.Set[key] = *value
		case set:
			change.Remove = append(change.Remove, key)
		}
	}
	return change
}

// labels returns the properties of an instance that the caller may read.
func (c *call) labels(ctx context.Context, inst croft.Instance) (objects.Object, error) {
	ref := objects.Ref{Kind: objects.Instance, Project: inst.Project, ID: string(inst.ID)}
	return c.Objects.Object(ctx, c.caller, c.scope, ref)
}

func createInstance(ctx context.Context, c *call, in api.NewInstance) (api.Instance, error) {
	r, err := c.requested(ctx, in.InstanceRequest)
	if err != nil {
		return api.Instance{}, err
	}
	c.action.about(r.Project, actions.Object{Kind: actions.Instance, ID: string(r.ID), Name: r.Name})
	d, err := made(ctx, c, r)
	if err != nil {
		return api.Instance{}, err
	}
	c.w.Header().Set("Location", "/v1/instances/"+string(d.Instance.ID))
	if d.Host.ID != "" && in.Wait == "" { // just ordered, and the request does not wait
		c.status = http.StatusAccepted
		return c.instance(croft.Status{Instance: d.Instance, Host: &d.Host}), nil
	}
	return c.ordered(d.Instance, in.Waiting)
}

// made creates the requested instance. If the identical request was made before, it returns that instance, in a
// decision without a host.
func made(ctx context.Context, c *call, r schedule.Request) (schedule.Decision, error) {
	d, err := c.Cloud.Scheduler.Request(ctx, r)
	// The identical earlier request may have used up the quota or the last capacity itself.
	full := errors.Is(err, croft.OverQuota) || errors.Is(err, croft.NoCapacity)
	if errors.Is(err, croft.Conflict) || r.ID != "" && full {
		d.Host = croft.Host{}
		d.Instance, err = c.taken(ctx, r, err)
	}
	if err == nil { // the request may have had neither an ID nor a name
		c.action.about(d.Instance.Project, actions.Object{Kind: actions.Instance, ID: string(d.Instance.ID),
			Name: d.Instance.Name})
	}
	return d, err
}

// taken returns the instance of an identical earlier request, or the conflict that prevents this one.
func (c *call) taken(ctx context.Context, r schedule.Request, refused error) (croft.Instance, error) {
	if r.ID != "" {
		st, err := c.Cloud.Scheduler.View.FindByID(ctx, r.ID)
		switch {
		case err == nil && c.scope.Sees(st.Instance.Project) && r.Wants(st.Instance):
			return st.Instance, nil
		case err == nil:
			return croft.Instance{}, api.NewProblem(api.UUIDReused,
				"the UUID "+string(r.ID)+" is taken by another instance: choose another one, or none")
		}
	}
	if r.Name != "" {
		if st, err := c.Cloud.Scheduler.View.Find(ctx, r.Project, r.Name); err == nil {
			return croft.Instance{}, api.NewProblem(
				api.NameTaken,
				fmt.Sprintf("schedule %s: the name %[1]s is taken by "+
					"instance %s; choose another or destroy that one", r.Name, st.Instance.ID),
			)
		}
	}
	if by, is := errors.AsType[*croft.TakenError](refused); is { // which has just gone
		code := map[string]api.Code{"name": api.NameTaken, "id": api.UUIDReused}[by.What]
		return croft.Instance{}, api.NewProblem(code, refused.Error())
	}
	return croft.Instance{}, refused
}

// change orders a change of the instance that the path names.
func (c *call) change(ctx context.Context, in api.Waiting,
	do func(context.Context, croft.Project, string) (croft.Instance, error)) (api.Instance, error) {
	st, err := c.find(ctx)
	if err != nil {
		return api.Instance{}, err
	}
	inst, err := do(ctx, st.Instance.Project, string(st.Instance.ID))
	if err != nil {
		return api.Instance{}, err
	}
	return c.ordered(inst, in)
}

func resizeInstance(ctx context.Context, c *call, in api.InstanceSize) (api.Instance, error) {
	return c.change(ctx, in.Waiting, func(ctx context.Context, p croft.Project, id string) (croft.Instance, error) {
		switch {
		case (len(in.Resources) == 0) == (in.Size == ""):
			return croft.Instance{}, croft.Errorf(croft.Invalid, "resize %s: give either amounts or a size", in.ID)
		case in.Size == "":
			return c.Cloud.Sizes.Resize(ctx, p, id, in.Resources)
		}
		size, err := c.Cloud.NamedSizes.Find(ctx, in.Size)
		if err != nil {
			return croft.Instance{}, err
		}
		return c.Cloud.Sizes.ResizeTo(ctx, p, id, size)
	})
}

func moveInstance(ctx context.Context, c *call, in api.InstanceMove) (api.Instance, error) {
	st, err := c.find(ctx)
	if err != nil {
		return api.Instance{}, err
	}
	if _, err := c.Cloud.Fleet.Move(ctx, st, in.Host); err != nil {
		return api.Instance{}, err
	}
	return c.ordered(st.Instance, in.Waiting)
}

func cancelMove(ctx context.Context, c *call, in api.InstanceChange) (api.Instance, error) {
	st, err := c.find(ctx)
	if err != nil {
		return api.Instance{}, err
	}
	if err := c.Cloud.Fleet.EndCopy(ctx, st.Instance, "an operator ended the move"); err != nil {
		return api.Instance{}, err
	}
	return c.ordered(st.Instance, in.Waiting)
}

func destroyInstance(ctx context.Context, c *call, in api.InstanceRemoval) (api.Instance, error) {
	if in.Force && !c.caller.Operator() {
		return api.Instance{}, api.NewProblem(api.ForbiddenVerb,
			"only operators may use force: a silent host may still run the guest")
	}
	st, err := c.find(ctx)
	if err != nil {
		return api.Instance{}, err
	}
	if !in.Snapshots {
		err := c.Cloud.Volumes.WithoutSnapshots(ctx, st.Instance, "remove them first, or add --snapshots")
		if err != nil {
			return api.Instance{}, err
		}
	}
	d, err := c.Cloud.Scheduler.Destroy(ctx, st.Instance.Project, string(st.Instance.ID), in.Force)
	if err != nil {
		return api.Instance{}, err
	}
	if d.Gone {
		return c.gone(d.Instance), nil
	}
	return c.ordered(d.Instance, in.Waiting)
}

var goals = map[string]schedule.Goal{
	"running": schedule.Running, "ready": schedule.Ready, "stopped": schedule.Stopped, "gone": schedule.Gone,
}

// ordered returns the answer for a change that has been ordered, after the wait that the request asks for.
func (c *call) ordered(inst croft.Instance, in api.Waiting) (shown api.Instance, err error) {
	c.action.about(inst.Project, actions.Object{Kind: actions.Instance, ID: string(inst.ID), Name: inst.Name})
	c.action.record(c, actions.Done) // independently of how the wait ends
	c.status = http.StatusAccepted
	if goal := goals[in.Wait]; goal != nil {
		known, end := c.lasting()
		defer end()
		ctx, cancel := context.WithTimeout(known, in.Timeout.Duration())
		defer cancel()
		err = c.Cloud.Scheduler.Wait(ctx, inst, goal, nil)
		switch {
		case err == nil:
			c.status = http.StatusOK
		case known.Err() != nil && c.r.Context().Err() == nil:
			return shown, errRevoked
		case !errors.Is(ctx.Err(), context.DeadlineExceeded):
			return shown, c.failed(inst, err)
		}
	}
	ctx, cancel := c.brief()
	defer cancel()
	st, err := c.Cloud.Scheduler.View.Find(ctx, inst.Project, string(inst.ID))
	if errors.Is(err, croft.NotFound) {
		return c.gone(inst), nil
	}
	return c.instance(st), err
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
	st, found := c.Cloud.Scheduler.View.Find(ctx, inst.Project, string(inst.ID))
	if found != nil || st.Observation == nil {
		return api.NewProblem(api.BadState, "instance "+inst.Name+" failed, and was changed since")
	}
	return api.NewProblem(api.BadState, "instance "+inst.Name+" failed: "+c.instance(st).Error)
}
