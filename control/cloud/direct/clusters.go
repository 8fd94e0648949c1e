package direct

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"time"

	"croft"
	"croft/client"
	"croft/cluster"
	"croft/cluster/appliances"
	elsewhere "croft/cluster/croft"
	"croft/cluster/heat"
	"croft/cluster/local"
	"croft/cluster/manager"
	"croft/cluster/outbound"
	"croft/cluster/registry"
	service "croft/cluster/requests"
	"croft/cluster/seal"
	"croft/cluster/sim"
	"croft/cluster/survey"
	"croft/compute/image"
	"croft/control/cloud"
	"croft/etcdstore"
	"croft/internal/build"
	"croft/internal/delay"
	"croft/schedule"
)

// Clusters configures how this process requests clusters. The zero value has no keys, so it cannot store or use
// secrets.
type Clusters struct {
	Vault     cluster.Vault // nil: no key
	AllowedIP string        // address range from which machines at other sites can be reached; may be empty
	Outbound  outbound.Rule // which addresses may be called that templates of other sites name
	Images    Catalog       // image catalogue of the cloud's own site
	Sim       *sim.Site     // driver of simulated sites; nil: a new one
	Log       *slog.Logger  // default: discards

	under    manager.Config
	registry *registry.Registry
}

// over fills in the parts of a cloud that handle clusters; the cloud has a store and a scheduler.
func (c *Clusters) over(into *cloud.Cloud, store *etcdstore.Store, scheduler *schedule.Scheduler) error {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Vault == nil {
		c.Vault = &seal.Keys{}
	}
	drivers, err := c.drivers(into, store, scheduler)
	if err != nil {
		return err
	}
	backends := cluster.Backends{Partition: store.Partition(), Records: store.Clusters, Catalogue: store.Clusters,
		Accounts: store.Clusters, Drivers: drivers, Vault: c.Vault, Images: siteImage, AllowedIP: c.AllowedIP,
		Log: c.Log}
	looking, err := survey.New(survey.Config{Backends: backends})
	if err != nil {
		return err
	}
	c.under = manager.Config{Backends: backends, Survey: looking, Clocks: store.Turn.CheckClocks}
	asked, err := service.New(service.Config{Backends: backends, Quotas: store.Projects, Survey: looking,
		Outbound: c.Outbound})
	if err != nil {
		return err
	}
	c.registry, err = registry.New(registry.Config{Backends: backends})
	if err != nil {
		return err
	}
	into.Clusters, into.Sites, into.Credentials = asked, c.registry.Sites(), c.registry.Credentials()
	into.Appliances, into.SiteImages = c.registry.Appliances(), c.registry.SiteImages()
	return nil
}

// drivers returns the drivers of sites by site type.
func (c *Clusters) drivers(over *cloud.Cloud, store *etcdstore.Store, scheduler *schedule.Scheduler) (
	map[cluster.SiteType]cluster.Driver, error) {
	here, err := local.New(local.Config{Scheduler: scheduler, Keys: store.SSHKeys, ResolveImage: c.localImage,
		Catalog: CatalogReference(store),
		PublicImage: func(name, reference string) bool {
			return strings.ContainsAny(name, "/:#") && c.Images.Public(reference)
		},
		Quotas: store.Projects,
		Pull: func(ctx context.Context, host croft.Host, name, reference string, progress func(croft.Progress)) error {
			_, err := over.Images.Pull(ctx, host, name, reference, progress)
			return err
		},
		Console: func(ctx context.Context, st croft.Status) (text string, err error) {
			err = over.Consoles.Log(ctx, st, false, func(r io.Reader) error {
				text, err = tail(r, cluster.MaxConsole)
				return err
			})
			return text, err
		}, SetsUp: func(st *croft.Status) bool { return st.Host == nil || st.Host.VirtType != "sim" },
		Version: build.Version, Log: c.Log})
	if err != nil {
		return nil, err
	}
	pretended := c.Sim
	if pretended == nil {
		pretended = sim.New()
	}
	return map[cluster.SiteType]cluster.Driver{cluster.Local: here, cluster.Sim: pretended,
		cluster.OpenStack: heat.New(heat.Config{Log: c.Log}), cluster.Croft: elsewhere.New(peer)}, nil
}

// localImage returns the reference of an image that all callers may name: an image of the catalogue, or one at an
// address that tenants may name. Invalid.
func (c *Clusters) localImage(name string) (string, error) {
	reference, err := c.Images.X86Reference(name)
	if err != nil || !strings.ContainsAny(name, "/:#") {
		return reference, err
	}
	if err := c.Images.CheckSource(reference); err != nil {
		return "", croft.Errorf(croft.Invalid, "image %.80s: %w", name, err)
	}
	return reference, nil
}

// tail returns the last bytes of a text.
func tail(r io.Reader, most int) (string, error) {
	var kept []byte
	part := make([]byte, 32<<10)
	for {
		n, err := r.Read(part)
		if kept = append(kept, part[:n]...); len(kept) > 2*most {
			kept = append(kept[:0], kept[len(kept)-most:]...)
		}
		if err != nil {
			kept = kept[max(0, len(kept)-most):]
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return string(kept), err
		}
	}
}

// Manager returns the manager that builds the clusters of the cloud that Over returned.
func (c *Clusters) Manager() (*manager.Manager, error) { return manager.New(c.under) }

// ensurePause is the pause before a failed write is tried again.
const ensurePause = 10 * time.Second

// Ensure stores what every cloud needs to build clusters: the site of the cloud's hosts, and the appliances that croft
// ships. It returns when that is done or ctx ends.
func (c *Clusters) Ensure(ctx context.Context) {
	for {
		err := errors.Join(c.registry.EnsureLocal(ctx), c.registry.EnsureBuiltIn(ctx, shipped()))
		if err == nil || ctx.Err() != nil {
			return
		}
		c.Log.Warn("what clusters are built by could not be stored", "err", err)
		if delay.For(ctx, ensurePause) != nil {
			return
		}
	}
}

// shipped returns the appliances that croft ships.
func shipped() (all []registry.BuiltIn) {
	for _, one := range appliances.All() {
		all = append(all, registry.BuiltIn(one))
	}
	return all
}

// siteImage returns an image of the cloud's catalogue. An image whose checksum is only in a list has no source that a
// site could verify. NotFound.
func siteImage(name string) (cluster.SiteImage, error) {
	catalog, err := image.LoadCatalog(image.MachineFiles(), nil)
	if err != nil {
		return cluster.SiteImage{}, err
	}
	e, err := catalog.Resolve(name)
	if err != nil {
		return cluster.SiteImage{}, err
	}
	i := cluster.SiteImage{Name: name}
	if e.SHA256 != "" {
		i.URL, i.SHA256 = e.URL, e.SHA256
	}
	return i, nil
}

// peer connects to another croft that a site names, with the token of a credential.
func peer(at cluster.SiteAccess) (elsewhere.Peer, error) {
	requests, err := outbound.Client(outbound.Config{CACert: at.Site.CACert})
	if err != nil {
		return elsewhere.Peer{}, err
	}
	c, err := client.Through(requests, client.Settings{URL: at.Site.AuthURL, Token: at.Secret.Reveal()})
	if err != nil {
		return elsewhere.Peer{}, err
	}
	return elsewhere.Peer{Clusters: c, Close: c.Close, Version: func(ctx context.Context) (string,
		error) {
		root, err := c.Root(ctx)
		if err == nil && !at.Secret.Empty() {
			_, err = c.Caller(ctx)
		}
		return root.Version, err
	}}, nil
}
