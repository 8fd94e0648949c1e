package direct

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"croft/cloud"
	"croft/cluster"
	"croft/cluster/heat"
	"croft/cluster/manager"
	"croft/cluster/registry"
	service "croft/cluster/requests"
	"croft/cluster/seal"
	"croft/cluster/sim"
	"croft/etcdstore"
	"croft/image"
	"croft/internal/delay"
	"croft/schedule"
)

// Clusters says how this process asks for clusters. The zero value is that of a single command: it has no keys, so that
// it can neither take a secret nor use one.
type Clusters struct {
	Vault     cluster.Vault // nil: there is no key
	AllowedIP string        // from which machines at other sites are reached; may be empty
	Log       *slog.Logger  // discards by default

	under    manager.Config
	registry *registry.Registry
}

// over fills in what clusters need of a cloud that has a store and a scheduler.
func (c *Clusters) over(into *cloud.Cloud, store *etcdstore.Store, scheduler *schedule.Scheduler) error {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Vault == nil {
		c.Vault = &seal.Keys{}
	}
	drivers, err := c.drivers(into, store, scheduler)
	if err != nil {
		return err
	}
	c.under = manager.Config{Partition: store.Partition(), Records: store.Clusters, Catalogue: store.Clusters,
		Drivers: drivers, Vault: c.Vault, Images: siteImage, AllowedIP: c.AllowedIP, Log: c.Log}
	asked, err := service.New(service.Config{Partition: store.Partition(), Records: store.Clusters,
		Catalogue: store.Clusters, Accounts: store.Clusters, Drivers: drivers, Vault: c.Vault, Images: siteImage,
		AllowedIP: c.AllowedIP, Log: c.Log})
	if err != nil {
		return err
	}
	c.registry, err = registry.New(registry.Config{Partition: store.Partition(), Catalogue: store.Clusters,
		Drivers: drivers, Vault: c.Vault, Images: siteImage, Log: c.Log})
	if err != nil {
		return err
	}
	into.Clusters, into.Sites, into.Credentials = asked, c.registry.Sites(), c.registry.Credentials()
	into.Appliances, into.SiteImages, into.Seals = c.registry.Appliances(), c.registry.SiteImages(), c.registry
	return nil
}

// drivers are what reaches sites, by their types.
func (c *Clusters) drivers(*cloud.Cloud, *etcdstore.Store, *schedule.Scheduler) (map[cluster.SiteType]cluster.Driver,
	error) {
	return map[cluster.SiteType]cluster.Driver{cluster.Sim: sim.New(), cluster.OpenStack: heat.New(heat.Config{Log: c.Log})},
		nil
}

// Manager returns what builds the clusters of the cloud that Over made.
func (c *Clusters) Manager() (*manager.Manager, error) { return manager.New(c.under) }

// ensurePause is the pause after which what could not be stored is tried again.
const ensurePause = 10 * time.Second

// Ensure stores what every cloud has to build clusters by: the site of its own hosts, and the appliances that croft
// ships. It returns once that is done, or ctx ends.
func (c *Clusters) Ensure(ctx context.Context) {
	for {
		err := c.registry.EnsureLocal(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		c.Log.Warn("what clusters are built by could not be stored", "err", err)
		if delay.For(ctx, ensurePause) != nil {
			return
		}
	}
}

// siteImage returns an image of the cloud's catalogue. One whose checksum is only in a list has no source that a site
// could be sure of. NotFound.
func siteImage(name string) (cluster.Image, error) {
	catalog, err := image.LoadCatalog(image.CatalogFiles(), nil)
	if err != nil {
		return cluster.Image{}, err
	}
	e, err := catalog.Resolve(name)
	if err != nil {
		return cluster.Image{}, err
	}
	i := cluster.Image{Name: name}
	if e.SHA256 != "" {
		i.URL, i.SHA256 = e.URL, e.SHA256
	}
	return i, nil
}
