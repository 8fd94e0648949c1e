package direct

import (
	"context"
	"sync"

	"croft"
	"croft/etcdstore"
	"croft/schedule"
)

// requests implements cloud.Requests.
type requests struct {
	*schedule.Scheduler
	store *etcdstore.Store
}

// Prepare watches hosts until end is called, so that requests do not read them. It must not overlap with other calls.
func (r requests) Prepare(ctx context.Context) (end func()) {
	view := r.store.NewHostsView()
	r.Registry = view
	ctx, cancel := context.WithCancel(ctx)
	var run sync.WaitGroup
	run.Go(func() { _ = view.Run(ctx) }) // returns only when its context ends
	return func() { cancel(); run.Wait() }
}

// instances implements cloud.Instances.
type instances struct {
	scheduler *schedule.Scheduler
	store     *etcdstore.Store
}

// Find implements cloud.Instances.
func (i instances) Find(ctx context.Context, project croft.Project, idOrName string) (croft.Status, error) {
	return i.scheduler.View.Find(ctx, project, idOrName)
}

// FindByID implements cloud.Instances.
func (i instances) FindByID(ctx context.Context, id croft.InstanceID) (croft.Status, error) {
	return i.scheduler.View.FindByID(ctx, id)
}

// List implements cloud.Instances.
func (i instances) List(ctx context.Context, project croft.Project) ([]croft.Status, error) {
	return i.scheduler.View.List(ctx, project)
}

// Page implements cloud.Instances.
func (i instances) Page(ctx context.Context, project croft.Project, after string, limit int) ([]croft.Status, bool,
	error) {
	return i.store.Instances.Page(ctx, project, after, limit)
}

// Watch implements cloud.Instances.
func (i instances) Watch(ctx context.Context, changed func()) error {
	return i.scheduler.View.WatchInstances(ctx, changed)
}

// Wait implements cloud.Instances.
func (i instances) Wait(ctx context.Context, inst croft.Instance, goal schedule.Goal,
	progress func(croft.Status)) error {
	return i.scheduler.Wait(ctx, inst, goal, progress)
}
