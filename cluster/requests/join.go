package requests

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/google/uuid"

	"croft"
	"croft/cluster"
)

// space is the name space of the IDs of uses.
var space = uuid.MustParse("e4b7a1f0-53a1-4d0e-9f4b-6f0c6f2f2f1c")

// useOf returns the ID of a request's use, computed from the request's ID, so that a repeated request has the same use.
func useOf(id croft.ClusterID) cluster.UseID {
	return cluster.UseID(uuid.NewSHA1(space, []byte(id)).String())
}

func newUse(r cluster.Request, now time.Time) cluster.Use {
	return cluster.Use{ID: useOf(r.ID), Since: now, Holder: r.User}
}

// joinable lists the clusters that a request may join, best first. It asks no site.
func (s *Service) joinable(ctx context.Context, r cluster.Request) ([]cluster.Cluster, error) {
	if r.Reuse == cluster.ReuseNever {
		return nil, nil
	}
	var credentials []cluster.Credential
	if !reflect.DeepEqual(r.Hints, cluster.Hints{}) {
		if err := s.survey.CheckHints(ctx, r); err != nil {
			return nil, err
		}
	}
	if len(r.Hints.Credentials) > 0 {
		var err error
		if credentials, err = s.c.Catalogue.Credentials(ctx, r.Project, r.User); err != nil {
			return nil, err
		}
	}
	all, err := s.c.Records.Living(ctx, r.Project)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(c cluster.Cluster) bool { return !r.Joins(c, credentials) || !s.alike(c, r) })
	slices.SortFunc(all, r.CompareReuse)
	return all, nil
}

// alike reports whether a cluster was requested with the same parameters. It is false if the cluster's parameters
// cannot be opened.
func (s *Service) alike(c cluster.Cluster, r cluster.Request) bool {
	given, err := cluster.GivenParameters(s.c.Vault, s.c.Partition, c)
	return err == nil && cluster.SameParameters(given, r.Parameters)
}

// joinAny joins the best cluster that a request may join. Reused is false if none exists.
func (s *Service) joinAny(ctx context.Context, r cluster.Request) (cluster.Created, error) {
	for try := range maxTries {
		all, err := s.joinable(ctx, r)
		if err != nil || len(all) == 0 {
			return cluster.Created{}, err
		}
		c, err := s.join(ctx, r, all[0])
		if err == nil {
			return cluster.Created{Cluster: c, Reused: true}, nil
		}
		// Changed records are read again. After a lost answer the use exists, or is added now.
		if !lost(err) && !errors.Is(err, errChanged) {
			return cluster.Created{}, err
		}
		if err := pause(ctx, try); err != nil {
			return cluster.Created{}, err
		}
	}
	return cluster.Created{}, croft.Errorf(croft.Unavailable, "too many others change clusters of appliance %s now",
		cluster.ApplianceName(r.Appliance))
}

// join adds the use of a request to a cluster, once, and extends the life of the cluster to the requested time.
func (s *Service) join(ctx context.Context, r cluster.Request, c cluster.Cluster) (cluster.Cluster, error) {
	now := time.Now().UTC()
	use := newUse(r, now)
	if slices.ContainsFunc(c.Uses, func(u cluster.Use) bool { return u.ID == use.ID }) {
		return c, nil
	}
	if len(c.Uses) >= cluster.MaxUses {
		return c, croft.Errorf(croft.Conflict,
			"cluster %s has %d uses, which is the most: end some, or ask for a new one",
			c.Name, len(c.Uses))
	}
	c.Uses = append(slices.Clone(c.Uses), use)
	c.IdleSince = time.Time{}
	if c.KeepIdle > 0 && (r.KeepIdle == 0 || r.KeepIdle > c.KeepIdle) {
		c.KeepIdle = r.KeepIdle
	}
	if end := now.Add(time.Duration(r.Expires)); !c.Expires.IsZero() && (r.Expires == 0 || end.After(c.Expires)) {
		c.Expires, c.Warned = end, time.Time{}
		if r.Expires == 0 {
			c.Expires = time.Time{}
		}
	}
	joined, err := s.update(ctx, c)
	if err == nil {
		s.note(ctx, joined, "another request of %s joined", r.User)
	}
	return joined, err
}
