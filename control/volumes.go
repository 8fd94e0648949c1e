package control

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"croft"
	"croft/control/actions"
	"croft/control/api"
	"croft/internal/lazyregexp"
	"croft/schedule"
	"croft/tenant/access"
)

var volumeOperations = noun{Tag: "volumes", Home: true,
	Description: "Disks of their own that outlive instances. A change answers when it is ordered; the volume shows " +
		"when its host has done it.",
	Operations: []Operation{
		list(Operation{ID: "listVolumes", At: "GET /v1/volumes", May: access.Reads, Summary: "List volumes"},
			func(ctx context.Context, c *call, _ api.InProject) (list api.VolumeList, err error) {
				all, err := c.Cloud.Volumes.List(ctx, c.project)
				if err != nil {
					return list, err
				}
				list.Volumes, err = c.volumes(ctx, all)
				return list, err
			}),
		do(Operation{ID: "createVolume", At: "POST /v1/volumes", May: access.Changes, Status: http.StatusCreated,
			Summary: "Create a volume", Conflict: api.NameTaken,
			Description: "Claims room on a host or of a shared storage, and orders an empty disk there. An instance " +
				"with a volume runs on the volume's host, or on a host that mounts its storage."},
			createVolume),
		do(Operation{ID: "getVolume", At: "GET /v1/volumes/{name}", May: access.Reads, Summary: "Get a volume"},
			func(ctx context.Context, c *call, in api.VolumeNamed) (api.Volume, error) {
				v, err := c.Cloud.Volumes.Find(ctx, c.home(), in.Name)
				return c.changedVolume(ctx, in.Name, v, err)
			}),
		do(Operation{ID: "growVolume", At: "POST /v1/volumes/{name}/grow", May: access.Changes,
			Summary:     "Make a volume larger, whether it is attached or not",
			Description: "A size that it has already changes nothing. A smaller size is refused."},
			func(ctx context.Context, c *call, in api.VolumeSize) (api.Volume, error) {
				v, err := c.Cloud.Volumes.Grow(ctx, c.home(), in.Name, in.SizeGB)
				return c.changedVolume(ctx, in.Name, v, err)
			}),
		do(Operation{ID: "attachVolume", At: "POST /v1/volumes/{name}/attach", May: access.Changes,
			Summary:     "Attach a volume to an instance that can have it, which may run",
			Description: "It is on the volume's host or, if the volume is on shared storage, on a host that mounts that.",
			Conflict:    api.InUse}, attachVolume),
		do(Operation{ID: "detachVolume", At: "POST /v1/volumes/{name}/detach", May: access.Changes,
			Summary:     "Detach a volume from its instance",
			Description: "A guest that runs is asked to release it, which the volume shows as `detaching` until then."},
			func(ctx context.Context, c *call, in api.VolumeNamed) (api.Volume, error) {
				v, err := c.Cloud.Volumes.Detach(ctx, c.home(), in.Name)
				return c.changedVolume(ctx, in.Name, v, err)
			}),
		do(Operation{ID: "removeVolume", At: "DELETE /v1/volumes/{name}", May: access.Changes, Conflict: api.InUse,
			Summary: "Remove a volume that is not attached, with its data"},
			func(ctx context.Context, c *call, in api.VolumeNamed) (nothing, error) {
				v, err := c.Cloud.Volumes.Remove(ctx, c.home(), in.Name)
				_, err = c.changedVolume(ctx, in.Name, v, err)
				return nothing{}, err
			}),
	},
}

func createVolume(ctx context.Context, c *call, in api.NewVolume) (api.Volume, error) {
	switch {
	case in.Host != "" && !c.caller.Operator():
		return api.Volume{}, api.NewProblem(api.PropertyForbidden, "only operators may name the host of a volume")
	case in.Host != "" && in.Near != "":
		return api.Volume{}, croft.Errorf(croft.Invalid, "create volume %s: name its host, or an instance that it "+
			"is to be "+
			"near, not both", in.Name)
	case in.Storage != "" && in.Storage != croft.StorageLocal && in.Host+in.Near != "":
		return api.Volume{}, croft.Errorf(croft.Invalid, "create volume %s: every host that mounts a shared storage has "+
			"its volumes: leave out the host or instance, or the storage", in.Name)
	case in.Storage != "" && in.Storage != croft.StorageLocal:
		v, err := c.Cloud.Volumes.CreateShared(ctx, c.home(), in.Name, in.SizeGB, in.Storage)
		if errors.Is(err, croft.NotFound) && !c.caller.Operator() { // whose error names the storages that there are
			err = api.NewProblem(api.NotFound, "create volume "+in.Name+": no host mounts such a shared storage")
		}
		return c.changedVolume(ctx, in.Name, v, err)
	case in.Near == "":
		v, err := c.Cloud.Volumes.Create(ctx, c.home(), in.Name, in.SizeGB, in.Host)
		return c.changedVolume(ctx, in.Name, v, err)
	}
	st, err := c.instanceNear(ctx, in.Near)
	if err != nil {
		return api.Volume{}, err
	}
	v, err := c.Cloud.Volumes.CreateNear(ctx, c.home(), in.Name, in.SizeGB, st.Instance)
	return c.changedVolume(ctx, in.Name, v, err)
}

// instanceNear returns the instance of the project on whose host a volume is or is to be.
func (c *call) instanceNear(ctx context.Context, name string) (croft.Status, error) {
	st, err := c.Cloud.Scheduler.View.Find(ctx, c.home(), name)
	if errors.Is(err, croft.NotFound) {
		err = api.Hidden("instance", name)
	}
	return st, err
}

func attachVolume(ctx context.Context, c *call, in api.VolumeAttachment) (api.Volume, error) {
	st, err := c.instanceNear(ctx, in.Instance)
	if err != nil {
		return api.Volume{}, err
	}
	v, err := c.Cloud.Volumes.Attach(ctx, c.home(), in.Name, st.Instance)
	return c.changedVolume(ctx, in.Name, v, err)
}

// changedVolume is the result of an operation on a named volume.
func (c *call) changedVolume(ctx context.Context, name string, v croft.Volume, err error) (api.Volume, error) {
	if schedule.CheckName(name) == nil {
		c.action.about(c.home(), actions.Object{Kind: actions.Volume, ID: string(v.ID), Name: name})
	}
	if errors.Is(err, croft.NotFound) && !c.caller.Operator() {
		err = api.Hidden("volume", name)
	}
	if err != nil {
		return api.Volume{}, err
	}
	all, err := c.volumes(ctx, []croft.Volume{v})
	if err != nil {
		return api.Volume{}, err
	}
	return all[0], nil
}

// unreachable returns the state of a volume whose host is silent, and what that means.
func unreachable(v croft.Volume, host croft.Host) (state, why string) {
	is := "silent"
	if host.IsDead() {
		is = "dead"
	}
	later := "its host is " + is + ", and carries out no orders until it returns"
	switch state := v.State(); {
	case !slices.Contains([]croft.VolumeState{croft.VolumeAvailable, croft.VolumeInUse, croft.SnapshotReady}, state):
		return string(state), later
	case v.Detaching:
		return api.VolumeUnreachable, later
	default:
		return api.VolumeUnreachable, "its host is " + is + ", and has its data"
	}
}

// unusable returns why no host can use a volume on shared storage now; empty: one can.
func unusable(v croft.Volume, hosts map[croft.HostID]croft.Host) string {
	switch host := hosts[v.Host]; {
	case host.CanKeep(v):
		return ""
	case v.Instance != "" && host.IsDead():
		return "its host is dead: its instance can be recreated with it elsewhere"
	case v.Instance != "" && host.ID != "" && !host.Alive:
		return "its host is silent, and may use it"
	}
	for _, h := range hosts {
		if h.CanKeep(v) {
			return "" // the next request makes it the keeper
		}
	}
	return "no host that mounts its shared storage is alive"
}

// storageName returns the name of a shared storage, or its UUID if no host mounts it now.
func storageName(hosts map[croft.HostID]croft.Host, id croft.StorageID) string {
	for _, h := range hosts {
		if m, mounted := h.Mounts(string(id)); mounted {
			return m.Name
		}
	}
	return string(id)
}

// hostPath matches a path on a host.
var hostPath = lazyregexp.New(`/[^\s:;,"]+/[^\s:;,"]+`)

// aboutHosts returns an error as the caller may see it: paths on hosts are for operators.
func (c *call) aboutHosts(text string) string {
	if c.caller.Operator() {
		return text
	}
	return hostPath.Get().ReplaceAllString(text, "its file")
}

// volumes returns volumes as the caller sees them.
func (c *call) volumes(ctx context.Context, all []croft.Volume) ([]api.Volume, error) {
	shown := []api.Volume{}
	if len(all) == 0 {
		return shown, nil
	}
	hosts, err := c.Cloud.Volumes.Hosts.Hosts(ctx)
	if err != nil {
		return nil, err
	}
	for _, v := range all {
		if !c.scope.Sees(v.Project) {
			continue
		}
		one := api.Volume{Name: v.Name, ID: v.ID, Project: v.Project, SizeGB: v.SizeGB, State: string(v.State()),
			Error: v.Error, Instance: v.Instance, Detaching: v.Detaching, Serial: v.Serial(), Created: v.Created}
		if v.Instance != "" {
			st, err := c.Cloud.Scheduler.View.FindByID(ctx, v.Instance)
			if err == nil && st.Instance.Project == v.Project {
				one.InstanceName = st.Instance.Name
			}
		}
		host, known := hosts[v.Host]
		switch {
		case v.Storage != "":
			one.Storage = storageName(hosts, v.Storage)
			if why := unusable(v, hosts); why != "" {
				one.Error = why
				if state := v.State(); state == croft.VolumeAvailable || state == croft.VolumeInUse {
					one.State = api.VolumeUnreachable
				}
			}
		case !known:
			one.State, one.Error = api.VolumeLost, "lost: its host was removed from the cloud"
		case v.State() == croft.SnapshotLost:
			one.Error = "lost: its host was declared dead; it keeps the data until an operator removes the leftover " +
				"of the instance there"
		case !host.Alive:
			one.State, one.Error = unreachable(v, host)
		}
		if c.caller.Operator() {
			one.Host = host.Name
		}
		one.Error = c.aboutHosts(one.Error)
		shown = append(shown, one)
	}
	return shown, nil
}
