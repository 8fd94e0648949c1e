package local

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"croft"
	"croft/cluster"
	"croft/internal/sighting"
	"croft/schedule"
	"croft/schedule/images"
	"croft/tenant"
)

// Config configures a Driver.
type Config struct {
	Scheduler *schedule.Scheduler // required
	Keys      schedule.Keys       // required: the SSH keys of projects
	// ResolveImage converts an image's name to the reference that hosts download. Required. Anyone who may write an
	// implementation can name images, so it rejects images that are not for everyone, such as files of the hosts.
	// Invalid.
	ResolveImage func(name string) (string, error)
	// Catalog comes before ResolveImage.
	Catalog images.Catalog

	// Quotas says whether a project may have more instances. Nil: a launch finds out about the quota.
	Quotas tenant.Quotas
	// PublicImage reports whether a name, which resolved to reference, is an address that a tenant may have written, so
	// that it may lead only to the internet. Nil: no address is.
	PublicImage func(name, reference string) bool
	// Pull makes a host fetch an image before it is needed. Nil: hosts fetch images when they need them.
	Pull func(ctx context.Context, host croft.Host, name, reference string, progress func(croft.Progress)) error
	// Console returns the console output of a guest. Nil: failures are reported without it.
	Console func(ctx context.Context, st croft.Status) (string, error)

	// SetsUp reports whether a guest runs its set-up, so that it can report the end; simulated ones run nothing. Nil:
	// all guests do.
	SetsUp func(st *croft.Status) bool

	Version string       // of this program
	Log     *slog.Logger // discards by default
}

// Driver implements cluster.Driver.
type Driver struct {
	Config
	greeted *greeted
	claims  sighting.First[claimed] // claims in progress that this process has found
}

var _ cluster.Driver = (*Driver)(nil)

// New checks the config. It starts nothing.
func New(c Config) (*Driver, error) {
	if c.Scheduler == nil || c.Keys == nil || c.ResolveImage == nil {
		return nil, croft.Errorf(croft.Invalid, "local: Scheduler, Keys and ResolveImage are required")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Driver{Config: c, greeted: newGreeted()}, nil
}

// resolve returns the reference of the image that a name means for a project.
func (d *Driver) resolve(ctx context.Context, p croft.Project, name string) (string, error) {
	if ref, has, err := d.Catalog.Look(ctx, p, name); has {
		return ref, err
	}
	return d.ResolveImage(name)
}

// Check implements cluster.Driver.
func (d *Driver) Check(ctx context.Context, i cluster.Implementation) (cluster.Contract, error) {
	t, err := textOf(i)
	if err != nil {
		return cluster.Contract{}, err
	}
	for _, r := range []cluster.Role{cluster.Master, cluster.Slave} {
		m, path := t.of(r)
		if strings.Contains(m.Image, "${") { // depends on the request
			continue
		}
		if _, err := d.resolve(ctx, i.Project, m.Image); err != nil && croft.KindOf(err) != croft.Conflict {
			return cluster.Contract{}, at(t.lines[path+".image"], "%s.image: %v", path, err)
		}
	}
	if t.Policy != "" {
		if _, err := d.Scheduler.Crush.Find(ctx, t.Policy); err != nil {
			return cluster.Contract{}, at(t.lines["policy"], "policy: %v", err)
		}
	}
	return cluster.Contract{Declared: t.declared(), RemoveNamed: true}, nil
}

// Probe implements cluster.Driver.
func (d *Driver) Probe(ctx context.Context, _ cluster.SiteAccess) (cluster.Probe, error) {
	hosts, err := d.Scheduler.Registry.Hosts(ctx)
	if err != nil {
		return cluster.Probe{}, err
	}
	free, err := d.free(ctx, hosts)
	if err != nil {
		return cluster.Probe{}, err
	}
	p := cluster.Probe{Version: d.Version, Accepted: true, Free: croft.Resources{}}
	for id, h := range hosts {
		if !takesOrders(h) {
			continue
		}
		p.Builds = true
		for class, n := range free[id] {
			p.Free[class] += n.left
		}
	}
	return p, nil
}

func takesOrders(h croft.Host) bool { return h.Alive && !h.Drained }

// afterwards bounds the time for undoing a claim.
const afterwards = 30 * time.Second

// List implements cluster.Driver.
func (d *Driver) List(ctx context.Context, _ cluster.SiteAccess) ([]cluster.Found, error) {
	all, err := d.Scheduler.View.List(ctx, "")
	if err != nil {
		return nil, err
	}
	byID := map[string]cluster.Found{}
	for _, st := range all {
		if id := st.Instance.Cluster; id != "" {
			byID[string(id)] = cluster.Found{Cluster: id, Remote: cluster.Remote{ID: string(id),
				Name: st.Instance.Spec.Tags[tagCluster]}}
		}
	}
	var found []cluster.Found
	for _, id := range sorted(byID) {
		found = append(found, byID[id])
	}
	return found, nil
}
