package control

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"croft"
	"croft/control/api"
	"croft/tenant/access"
)

var snapshotOperations = noun{Tag: "snapshots", Home: true,
	Description: "The state of all disks of an instance at one moment. A change answers when it is ordered; the " +
		"snapshot shows when its host has done it.",
	Operations: []Operation{
		list(Operation{ID: "listSnapshots", At: "GET /v1/snapshots", May: access.Reads,
			Summary: "List the snapshots of all instances"},
			func(ctx context.Context, c *call, _ api.InProject) (list api.SnapshotList, err error) {
				all, err := c.Cloud.Volumes.Snapshots(ctx, c.project)
				if err != nil {
					return list, err
				}
				list.Snapshots, err = c.snapshots(ctx, all)
				return list, err
			}),
		do(Operation{ID: "createSnapshot", At: "POST /v1/instances/{id}/snapshots", May: access.Changes,
			Status: http.StatusCreated, Conflict: api.NameTaken, Summary: "Take a snapshot of an instance",
			Description: "Captures its own disk and those of its volumes at one moment. A running guest is quiesced " +
				"if its guest agent answers; `method` says whether it was. The snapshot claims the size of all disks " +
				"on the host."},
			func(ctx context.Context, c *call, in api.NewSnapshot) (api.Snapshot, error) {
				st, err := c.find(ctx)
				if err != nil {
					return api.Snapshot{}, err
				}
				v, err := c.Cloud.Volumes.CreateSnapshot(ctx, st, in.Name)
				return c.changedSnapshot(ctx, v.Name, v, err)
			}),
		do(Operation{ID: "getSnapshot", At: "GET /v1/instances/{id}/snapshots/{snapshot}", May: access.Reads,
			Summary: "Get a snapshot"},
			func(ctx context.Context, c *call, in api.SnapshotNamed) (api.Snapshot, error) {
				return c.onSnapshot(ctx, in, func(st croft.Status) (croft.Volume, error) {
					return c.Cloud.Volumes.FindSnapshot(ctx, st.Instance, in.Snapshot)
				})
			}),
		do(Operation{ID: "rollBackSnapshot", At: "POST /v1/instances/{id}/snapshots/{snapshot}/rollback",
			May: access.Changes, Conflict: api.InUse, Summary: "Roll an instance back to its newest snapshot",
			Description: "Discards everything that was written to the disks since, for good. The instance must be " +
				"off, unless `stop` is true. The snapshot stays."},
			func(ctx context.Context, c *call, in api.SnapshotRollback) (api.Snapshot, error) {
				return c.onSnapshot(ctx, in.SnapshotNamed, func(st croft.Status) (croft.Volume, error) {
					return c.Cloud.Volumes.RollBack(ctx, st, in.Snapshot, in.Stop)
				})
			}),
		do(Operation{ID: "removeSnapshot", At: "DELETE /v1/instances/{id}/snapshots/{snapshot}", May: access.Changes,
			Conflict: api.InUse, Summary: "Remove a snapshot; the disks keep their data"},
			func(ctx context.Context, c *call, in api.SnapshotNamed) (nothing, error) {
				_, err := c.onSnapshot(ctx, in, func(st croft.Status) (croft.Volume, error) {
					return c.Cloud.Volumes.RemoveSnapshot(ctx, st.Instance, in.Snapshot)
				})
				return nothing{}, err
			}),
	},
}

// onSnapshot does something with a named snapshot.
func (c *call) onSnapshot(ctx context.Context, in api.SnapshotNamed, do func(croft.Status) (croft.Volume, error)) (
	api.Snapshot, error) {
	st, err := c.find(ctx)
	if err != nil {
		return api.Snapshot{}, err
	}
	v, err := do(st)
	return c.changedSnapshot(ctx, in.Snapshot, v, err)
}

// changedSnapshot is the result of an operation on a snapshot.
func (c *call) changedSnapshot(ctx context.Context, name string, v croft.Volume, err error) (api.Snapshot, error) {
	if errors.Is(err, croft.NotFound) && !c.caller.Operator() {
		err = api.Hidden("snapshot", name)
	}
	if err != nil {
		return api.Snapshot{}, err
	}
	all, err := c.snapshots(ctx, []croft.Volume{v})
	if err == nil && len(all) == 0 {
		err = api.Hidden("snapshot", name)
	}
	if err != nil {
		return api.Snapshot{}, err
	}
	return all[0], nil
}

// snapshots returns snapshots as the caller sees them.
func (c *call) snapshots(ctx context.Context, all []croft.Volume) ([]api.Snapshot, error) {
	shown := []api.Snapshot{}
	volumes, err := c.volumes(ctx, all)
	if err != nil || len(volumes) == 0 {
		return shown, err
	}
	names := map[croft.VolumeID]string{}
	known, err := c.Cloud.Volumes.List(ctx, c.project)
	if err != nil {
		return nil, err
	}
	for _, v := range known {
		names[v.ID] = v.Name
	}
	records := map[croft.VolumeID]*croft.Snapshot{}
	for _, v := range all {
		records[v.ID] = v.Snapshot
	}
	when := func(t time.Time) *time.Time {
		if t.IsZero() {
			return nil
		}
		return &t
	}
	for _, v := range volumes {
		s := records[v.ID]
		one := api.Snapshot{Name: v.Name, ID: v.ID, Project: v.Project, Instance: s.Instance,
			InstanceName: v.InstanceName, SizeGB: v.SizeGB, State: v.State, Error: v.Error, Taken: when(s.Taken),
			Method: string(s.Method), Note: s.Note, RolledBack: when(s.RolledBack), Volumes: []string{},
			Created: v.Created, Host: v.Host}
		for _, id := range s.Volumes {
			one.Volumes = append(one.Volumes, cmp.Or(names[id], string(id)))
		}
		shown = append(shown, one)
	}
	return shown, nil
}
