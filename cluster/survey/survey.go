// Package survey finds out where a cluster can be built: it reads the stored records, asks sites for room, and lets
// cluster.Choose decide. It asks the sites concurrently, for a bounded time. A site that does not answer is not asked
// for a while, and delays a request by at most that time.
package survey

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"croft"
	"croft/cluster"

	"golang.org/x/sync/errgroup"
)

// Config configures a survey.
type Config struct {
	cluster.Backends // except Accounts

	Patience time.Duration // timeout of a question for room; 5 s by default
}

// Survey caches the answers of sites for a short time. It is safe for concurrent use.
type Survey struct {
	c Config

	mu        sync.Mutex
	rooms     map[question]answer
	troubles  []trouble
	contracts map[cluster.ImplementationID]contract
}

// New returns a survey with an empty cache.
func New(c Config) (*Survey, error) {
	if c.Partition == "" || c.Records == nil || c.Catalogue == nil || c.Log == nil {
		return nil, croft.Errorf(croft.Invalid, "survey: Partition, Records, Catalogue and Log are required")
	}
	if c.Patience == 0 {
		c.Patience = 5 * time.Second
	}
	return &Survey{c: c, rooms: map[question]answer{}, contracts: map[cluster.ImplementationID]contract{}}, nil
}

// Result is the candidates for a cluster, best first, and the dropped sites and implementations.
type Result struct {
	Candidates []cluster.Candidate
	Dropped    []cluster.Dropped
	Contracts  map[cluster.ImplementationID]cluster.Contract // of all implementations that were eligible
}

// Look returns the candidates for a request. The request's ID is the cluster's, and its parameters include the secret
// ones. attempts are the failed attempts, and reuse is the site of a cluster that the request would join. Invalid: a
// hint names something that does not exist, or no template accepts the parameters.
func (s *Survey) Look(ctx context.Context, r cluster.Request, attempts []cluster.Tried, reuse string) (Result,
	error) {
	w, err := s.world(ctx, r)
	if err != nil {
		return Result{}, err
	}
	w.Attempts, w.Reuse = attempts, reuse
	random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	possible, _, err := cluster.Choose(r, w, random)
	if err != nil {
		return Result{}, err
	}
	if err := s.read(ctx, &w, possible); err != nil {
		return Result{}, err
	}
	// Ask only those for room that can be used otherwise.
	fit, dropped, err := cluster.Choose(r, w, random)
	if err != nil || len(fit) == 0 {
		return Result{Dropped: dropped, Contracts: w.Contracts}, err
	}
	w.Rooms = s.ask(ctx, r, w, fit)
	if err := ctx.Err(); err != nil {
		return Result{}, context.Cause(ctx)
	}
	candidates, dropped, err := cluster.Choose(r, w, random)
	return Result{candidates, dropped, w.Contracts}, err
}

// CheckHints rejects hints that name something that does not exist. It asks no site. Invalid.
func (s *Survey) CheckHints(ctx context.Context, r cluster.Request) error {
	w, err := s.world(ctx, r)
	if err != nil {
		return err
	}
	return cluster.CheckHints(r.Hints, w)
}

// world reads the stored records.
func (s *Survey) world(ctx context.Context, r cluster.Request) (cluster.World, error) {
	w := cluster.World{Now: time.Now(), Filling: cluster.Filling{Cluster: r.ID, Name: r.Name, Slaves: r.Slaves,
		Given: r.Parameters, AllowedIP: s.c.AllowedIP, Keys: r.Keys}}
	for kind := range s.c.Drivers {
		w.Types = append(w.Types, kind)
	}
	read, ctx := errgroup.WithContext(ctx)
	read.Go(func() (err error) { w.Sites, err = s.c.Catalogue.Sites(ctx); return err })
	read.Go(func() (err error) {
		w.Implementations, err = s.c.Catalogue.Implementations(ctx, r.Appliance)
		return err
	})
	read.Go(func() (err error) {
		w.Credentials, err = s.c.Catalogue.Credentials(ctx, r.Project, r.User)
		return err
	})
	read.Go(func() (err error) { w.Clusters, err = s.c.Records.List(ctx, ""); return err })
	if err := read.Wait(); err != nil {
		return w, err
	}
	w.Troubles = append(Failures(w.Clusters, w.Now), s.recent(w.Now)...)
	return w, nil
}

// Failures returns the builds that failed within the last hour, one per cluster and site.
func Failures(all []cluster.Cluster, now time.Time) []cluster.Trouble {
	var troubles []cluster.Trouble
	for _, c := range all {
		at := map[string]time.Time{}
		for _, a := range c.Attempts {
			at[a.Site] = a.At
		}
		if c.State == cluster.Failed && c.Error != nil && c.Site != "" {
			at[c.Site] = c.Error.At
		}
		for site, when := range at {
			if now.Sub(when) < cluster.TroubleKept {
				troubles = append(troubles, cluster.Trouble{Site: site, At: when})
			}
		}
	}
	return troubles
}
