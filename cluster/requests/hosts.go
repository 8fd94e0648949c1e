package requests

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"croft"
	"croft/cluster"
)

// AddHost adds one slave to a cluster. Conflict. NoCapacity: its site has no room.
func (s *Service) AddHost(ctx context.Context, project croft.Project, idOrName string) (cluster.Cluster, error) {
	if err := s.fitsAfter(ctx, project, idOrName, func(cluster.Cluster) int { return 1 }); err != nil {
		return cluster.Cluster{}, err
	}
	return s.change(ctx, project, idOrName, func(c *cluster.Cluster) (bool, error) {
		return true, s.resize(ctx, c, c.Slaves+1)
	})
}

// Last names the most recently added slave, for RemoveHost.
const Last = "last"

// RemoveHost removes a slave, chosen by its ID, its name, or "last". Conflict: it is the master, or may not be removed.
func (s *Service) RemoveHost(ctx context.Context, project croft.Project, idOrName, host string) (cluster.Cluster,
	error) {
	return s.change(ctx, project, idOrName, func(c *cluster.Cluster) (bool, error) {
		if err := resizable(*c); err != nil {
			return false, err
		}
		index, err := slave(*c, host)
		if err != nil {
			return false, err
		}
		if err := s.mayShrink(ctx, *c, c.Slaves-1); err != nil {
			return false, err
		}
		return true, s.takeOut(ctx, c, index)
	})
}

// slave returns the index of a wanted slave. NotFound. Conflict: host is the master, or there are no slaves.
func slave(c cluster.Cluster, host string) (int, error) {
	if host == Last {
		if len(c.Indexes) == 0 {
			return 0, croft.Errorf(croft.Conflict, "cluster %s has no slaves", c.Name)
		}
		return c.Indexes[len(c.Indexes)-1], nil
	}
	if host == string(cluster.IDOf(c.ID, cluster.Master, 0)) {
		return 0, isMaster(c)
	}
	for _, m := range c.Members {
		if m.Name == host && m.Role == cluster.Master {
			return 0, isMaster(c)
		}
		if m.Name == host && m.Role == cluster.Slave && slices.Contains(c.Indexes, m.Index) {
			return m.Index, nil
		}
	}
	for _, i := range c.Indexes {
		if host == string(cluster.IDOf(c.ID, cluster.Slave, i)) {
			return i, nil
		}
	}
	return 0, croft.Errorf(croft.NotFound, "cluster %s has no host %.80q", c.Name, host)
}

func isMaster(c cluster.Cluster) error {
	return croft.Errorf(croft.Conflict, "the master of cluster %s cannot be removed: delete the cluster", c.Name)
}

// takeOut removes a slave. Conflict: the template permits to remove only the last slave, and this is another.
func (s *Service) takeOut(ctx context.Context, c *cluster.Cluster, index int) error {
	named, err := s.removesNamed(ctx, *c)
	if err != nil {
		return err
	}
	if last := c.Indexes[len(c.Indexes)-1]; !named && index != last {
		return croft.Errorf(croft.Conflict,
			"the template of cluster %s declares no parameter %s, so only its last slave "+
				"can be removed", c.Name, cluster.ParamRemoved)
	}
	c.Indexes = slices.DeleteFunc(slices.Clone(c.Indexes), func(i int) bool { return i == index })
	c.Slaves = len(c.Indexes)
	if named {
		// A site that knows the removed slaves never uses an index twice.
		c.Removed = append(slices.Clone(c.Removed), index)
		slices.Sort(c.Removed)
	}
	return nil
}

func (s *Service) removesNamed(ctx context.Context, c cluster.Cluster) (bool, error) {
	site, err := s.site(ctx, c)
	if err != nil {
		return false, err
	}
	i, err := s.c.Catalogue.Implementation(ctx, c.Implementation)
	if err != nil {
		return false, fmt.Errorf("read the implementation of cluster %s: %w", c.Name, err)
	}
	contract, err := s.survey.Contract(ctx, site.Type, i)
	return contract.RemoveNamed, err
}

func (s *Service) site(ctx context.Context, c cluster.Cluster) (cluster.Site, error) {
	all, err := s.c.Catalogue.Sites(ctx)
	if err != nil {
		return cluster.Site{}, err
	}
	at := slices.IndexFunc(all, func(site cluster.Site) bool { return site.Name == c.Site })
	if at < 0 {
		return cluster.Site{}, croft.Errorf(croft.NotFound, "site %s of cluster %s was removed", c.Site,
			c.Name)
	}
	return all[at], nil
}

// resize changes the number of wanted slaves; it removes slaves from the end. Conflict.
func (s *Service) resize(ctx context.Context, c *cluster.Cluster, slaves int) error {
	if err := resizable(*c); err != nil {
		return err
	}
	if slaves > cluster.MaxSlaves {
		return croft.Errorf(croft.Conflict, "cluster %s has %d slaves, which is the most", c.Name, c.Slaves)
	}
	if slaves < c.Slaves {
		if err := s.mayShrink(ctx, *c, slaves); err != nil {
			return err
		}
	}
	for len(c.Indexes) > slaves {
		if err := s.takeOut(ctx, c, c.Indexes[len(c.Indexes)-1]); err != nil {
			return err
		}
	}
	c.Indexes = slices.Clone(c.Indexes)
	for len(c.Indexes) < slaves {
		c.Indexes = append(c.Indexes, c.NextIndex)
		c.NextIndex++
	}
	c.Slaves = len(c.Indexes)
	return nil
}

// resizeTo changes the indexes of the wanted slaves. Conflict: an index was used before, or a slave cannot be removed
// by name.
func (s *Service) resizeTo(ctx context.Context, c *cluster.Cluster, indexes []int) error {
	if err := resizable(*c); err != nil {
		return err
	}
	if len(indexes) < c.Slaves {
		if err := s.mayShrink(ctx, *c, len(indexes)); err != nil {
			return err
		}
	}
	for _, i := range slices.Backward(slices.Clone(c.Indexes)) { // from the last one
		if !slices.Contains(indexes, i) {
			if err := s.takeOut(ctx, c, i); err != nil {
				return err
			}
		}
	}
	c.Indexes = slices.Clone(c.Indexes)
	for _, i := range indexes {
		if slices.Contains(c.Indexes, i) {
			continue
		}
		if i < c.NextIndex {
			return croft.Errorf(croft.Conflict, "slave %d of cluster %s was removed, and its index is not used again", i,
				c.Name)
		}
		c.Indexes, c.NextIndex = append(c.Indexes, i), i+1
	}
	c.Slaves = len(c.Indexes)
	return nil
}

// resizable rejects a resize of a cluster that is not built, or cannot be used any more. Conflict.
func resizable(c cluster.Cluster) error {
	switch c.State {
	case cluster.Ready, cluster.Resizing, cluster.Degraded:
		return nil
	case cluster.Scheduling, cluster.Building:
		return croft.Errorf(croft.Conflict, "cluster %s is being built, and can be resized once it is ready", c.Name)
	case cluster.Failed:
		return croft.Errorf(croft.Conflict, "cluster %s has failed, and cannot be resized", c.Name)
	}
	return living(c)
}

// mayShrink rejects fewer slaves than the appliance needs. Conflict.
func (s *Service) mayShrink(ctx context.Context, c cluster.Cluster, slaves int) error {
	a, err := s.c.Catalogue.Appliance(ctx, c.Appliance)
	if err != nil && !errors.Is(err, croft.NotFound) {
		return err
	}
	least := a.MinSlaves // 0 if the appliance was removed
	if slaves < least {
		return croft.Errorf(croft.Conflict, "cluster %s cannot have %d slaves: appliance %s needs at least %d", c.Name,
			max(slaves, 0), cluster.ApplianceName(c.Appliance), least)
	}
	if slaves < 0 {
		return croft.Errorf(croft.Conflict, "cluster %s has no slaves", c.Name)
	}
	return nil
}

// fitsAfter asks the site of a cluster for room for more slaves. Nil if the site does not know, or does not answer: the
// resize itself decides in the end. NoCapacity.
func (s *Service) fitsAfter(ctx context.Context, project croft.Project, idOrName string,
	more func(cluster.Cluster) int) error {
	c, err := s.Find(ctx, project, idOrName)
	if err != nil {
		return err
	}
	n := more(c)
	if n <= 0 || resizable(c) != nil {
		return nil // nothing to ask for, or refused later
	}
	room, err := s.growth(ctx, c, n)
	if errors.Is(err, croft.Unavailable) {
		return nil
	}
	if err == nil && room.Known && !room.Fits {
		return croft.Errorf(croft.NoCapacity, "site %s has no room for %d more: %s", c.Site, n, room.Why)
	}
	return err
}

func (s *Service) growth(ctx context.Context, c cluster.Cluster, n int) (cluster.Room, error) {
	site, err := s.site(ctx, c)
	if err != nil {
		return cluster.Room{}, err
	}
	var credential cluster.Credential
	if c.Credential != "" {
		if credential, err = s.c.Catalogue.Credential(ctx, c.Credential); err != nil {
			return cluster.Room{}, err
		}
	}
	i, err := s.c.Catalogue.Implementation(ctx, c.Implementation)
	if err != nil {
		return cluster.Room{}, err
	}
	given, err := cluster.GivenParameters(s.c.Vault, s.c.Partition, c)
	if err != nil {
		return cluster.Room{}, err
	}
	b := cluster.Build{Partition: s.c.Partition, Cluster: c.ID, Name: c.Name, Project: c.Project, User: c.User,
		Implementation: i, Image: i.Image, Growth: true, Remote: c.Remote, Removed: c.Removed}
	for _, pending := range c.Indexes { // wanted already, but not requested from the site yet
		if !slices.Contains(c.Sizing.Told, pending) {
			b.Indexes = append(b.Indexes, pending)
		}
	}
	for k := range n {
		b.Indexes = append(b.Indexes, c.NextIndex+k)
	}
	contract, err := s.survey.Contract(ctx, site.Type, i)
	if err != nil {
		return cluster.Room{}, err
	}
	if b.Parameters, _, err = cluster.Fill(contract, cluster.Filling{Cluster: c.ID, Name: c.Name, Slaves: c.Slaves + n,
		Removed: c.Removed, Image: i.Image, AllowedIP: s.c.AllowedIP, Keys: c.Keys, Given: given,
		Implementation: i, Site: site}); err != nil {
		return cluster.Room{}, err
	}
	return s.survey.Room(ctx, site, credential, b)
}
