package clusters

import (
	"context"
	"errors"
	"strings"

	"croft"
	"croft/cli/args"
	"croft/cluster"
)

func completeClusters(ctx context.Context, c *args.Client, offer args.Offer) error {
	all, err := c.Clusters.List(ctx, c.Project, cluster.Filter{})
	for _, one := range all {
		offer(one.Name, strings.ToLower(string(one.State))+", "+cluster.ApplianceName(one.Appliance))
	}
	return err
}

// find returns a cluster. A NotFound error suggests the nearest name.
func find(ctx context.Context, c *args.Client, idOrName string) (cluster.Cluster, error) {
	have, err := c.Clusters.Find(ctx, c.Project, idOrName)
	return have, near(err, idOrName, func() (names []string) {
		all, _ := c.Clusters.List(ctx, c.Project, cluster.Filter{}) // the hint is optional
		for _, one := range all {
			names = append(names, one.Name)
		}
		return names
	})
}

func offerSites(ctx context.Context, c *args.Client, offer args.Offer) error {
	all, err := c.Sites.List(ctx)
	for _, s := range all {
		offer(s.Name, string(s.Type))
	}
	return err
}

// nearSite adds the nearest name of a site to a NotFound error.
func nearSite(ctx context.Context, c *args.Client, name string, err error) error {
	return near(err, name, func() (names []string) {
		all, _ := c.Sites.List(ctx) // the hint is optional
		for _, s := range all {
			names = append(names, s.Name)
		}
		return names
	})
}

func offerImages(ctx context.Context, c *args.Client, offer args.Offer) error {
	all, err := c.SiteImages.List(ctx)
	for _, i := range all {
		offer(i.Name, i.Format)
	}
	return err
}

func offerCredentials(ctx context.Context, c *args.Client, offer args.Offer) error {
	user, err := c.User(ctx)
	if err != nil {
		return err
	}
	all, err := c.Credentials.List(ctx, c.Project, user)
	for _, one := range all {
		offer(one.Name, one.Username+" at site "+one.Site)
	}
	return err
}

// nearCredential adds the nearest name of the user's own credentials to a NotFound error.
func nearCredential(ctx context.Context, c *args.Client, user, name string, err error) error {
	return near(err, name, func() (names []string) {
		all, _ := c.Credentials.List(ctx, c.Project, user) // the hint is optional
		for _, one := range all {
			names = append(names, one.Name)
		}
		return names
	})
}

func offerAppliances(ctx context.Context, c *args.Client, offer args.Offer) error {
	all, err := c.Appliances.List(ctx, c.Project)
	for _, a := range all {
		offer(a.Name, a.Description)
	}
	return err
}

// nearAppliance adds the nearest name of an appliance to a NotFound error.
func nearAppliance(ctx context.Context, c *args.Client, name string, err error) error {
	return near(err, name, func() (names []string) {
		all, _ := c.Appliances.List(ctx, c.Project) // the hint is optional
		for _, a := range all {
			names = append(names, a.Name)
		}
		return names
	})
}

// nearCluster adds the nearest name of a cluster to a NotFound error.
func nearCluster(ctx context.Context, c *args.Client, name string, err error) error {
	if errors.Is(err, croft.NotFound) {
		if _, missing := find(ctx, c, name); missing != nil {
			return missing
		}
	}
	return err
}
