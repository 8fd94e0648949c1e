package direct

import (
	"context"
	"errors"
	"io"
	"sync"

	"croft"
	"croft/cloud"
	"croft/etcdstore"
	"croft/internal/books"
	"croft/operator"
	"croft/placementclient"
	"croft/schedule"
)

var _ cloud.Cloud = (*Cloud)(nil)

// Cloud is a connection to etcd and Placement. Close it.
type Cloud struct {
	scheduler *schedule.Scheduler
	operator  *operator.Operator
	store     *etcdstore.Store
	claims    *placementclient.Client
	agents    agents
	settings  Settings
}

// Dial connects to the cloud that the settings name. Placement is not asked anything yet. NotFound: etcd holds no
// cloud. Unavailable: etcd does not answer.
func Dial(ctx context.Context, s Settings) (_ *Cloud, err error) {
	claims, err := s.Placement.Client()
	if err != nil {
		return nil, err
	}
	store, err := s.Etcd.Open(ctx, false)
	if err != nil {
		claims.Close()
		return nil, err
	}
	c := &Cloud{store: store, claims: claims, agents: agents{store}, settings: s}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	c.scheduler, err = schedule.New(schedule.Config{Partition: store.Partition(), Records: store, View: store,
		Claims: claims})
	if err != nil {
		return nil, err
	}
	c.operator, err = operator.New(operator.Config{
		Partition: store.Partition(), Hosts: store, Members: store, Records: store, Ledger: store, Claims: claims,
		Agents: c.agents,
	})
	return c, err
}

// Close ends the connections.
func (c *Cloud) Close() error {
	c.claims.Close()
	return c.store.Close()
}

// Request implements cloud.Requests.
func (c *Cloud) Request(ctx context.Context, r schedule.Request) (schedule.Decision, error) {
	return c.scheduler.Request(ctx, r)
}

// Explain implements cloud.Requests.
func (c *Cloud) Explain(ctx context.Context, r schedule.Request) (*schedule.Explanation, error) {
	return c.scheduler.Explain(ctx, r)
}

// Prepare implements cloud.Requests. It may not overlap with other calls.
func (c *Cloud) Prepare(ctx context.Context) (end func()) {
	view := c.store.NewHostsView()
	c.scheduler.View = view
	ctx, cancel := context.WithCancel(ctx)
	var run sync.WaitGroup
	run.Go(func() { _ = view.Run(ctx) }) // returns only with its context
	return func() { cancel(); run.Wait() }
}

// Find implements cloud.Instances.
func (c *Cloud) Find(ctx context.Context, project croft.Project, idOrName string) (croft.Status, error) {
	return c.scheduler.View.Find(ctx, project, idOrName)
}

// List implements cloud.Instances.
func (c *Cloud) List(ctx context.Context, project croft.Project) ([]croft.Status, error) {
	return c.scheduler.View.List(ctx, project)
}

// WatchInstances implements cloud.Instances.
func (c *Cloud) WatchInstances(ctx context.Context, changed func()) error {
	return c.scheduler.View.WatchInstances(ctx, changed)
}

// Wait implements cloud.Instances.
func (c *Cloud) Wait(ctx context.Context, inst croft.Instance, goal schedule.Goal, progress func(croft.Status)) error {
	return c.scheduler.Wait(ctx, inst, goal, progress)
}

// Start implements cloud.Changes.
func (c *Cloud) Start(ctx context.Context, project croft.Project, idOrName string) (croft.Instance, error) {
	return c.scheduler.Start(ctx, project, idOrName)
}

// Stop implements cloud.Changes.
func (c *Cloud) Stop(ctx context.Context, project croft.Project, idOrName string) (croft.Instance, error) {
	return c.scheduler.Stop(ctx, project, idOrName)
}

// Reboot implements cloud.Changes.
func (c *Cloud) Reboot(ctx context.Context, project croft.Project, idOrName string) (croft.Instance, error) {
	return c.scheduler.Reboot(ctx, project, idOrName)
}

// Rebuild implements cloud.Changes.
func (c *Cloud) Rebuild(ctx context.Context, project croft.Project, idOrName string) (croft.Instance, error) {
	return c.scheduler.Rebuild(ctx, project, idOrName)
}

// Destroy implements cloud.Changes.
func (c *Cloud) Destroy(ctx context.Context, project croft.Project, idOrName string, force bool) (schedule.Destroyed,
	error) {
	return c.scheduler.Destroy(ctx, project, idOrName, force)
}

// AddKey implements cloud.Keys.
func (c *Cloud) AddKey(ctx context.Context, k schedule.Key) error { return c.store.AddKey(ctx, k) }

// ListKeys implements cloud.Keys.
func (c *Cloud) ListKeys(ctx context.Context, project croft.Project) ([]schedule.Key, error) {
	return c.store.ListKeys(ctx, project)
}

// RemoveKey implements cloud.Keys.
func (c *Cloud) RemoveKey(ctx context.Context, project croft.Project, name string) error {
	return c.store.RemoveKey(ctx, project, name)
}

// Audit implements cloud.Audits.
func (c *Cloud) Audit(ctx context.Context) (operator.Report, error) { return c.operator.Audit(ctx) }

// Mend implements cloud.Audits.
func (c *Cloud) Mend(ctx context.Context, d books.Difference) error { return c.operator.Mend(ctx, d) }

// Mirror implements cloud.Monitor.
func (c *Cloud) Mirror() cloud.Mirror { return c.store.NewMirror() }

// Usable implements cloud.Monitor.
func (c *Cloud) Usable(ctx context.Context) error { return c.store.Usable(ctx) }

// Providers implements cloud.Monitor.
func (c *Cloud) Providers(ctx context.Context) ([]croft.Provider, error) {
	return c.claims.Providers(ctx)
}

// Snapshot implements cloud.Backups.
func (c *Cloud) Snapshot(ctx context.Context, w io.Writer) (int64, error) {
	return c.store.Snapshot(ctx, w)
}
