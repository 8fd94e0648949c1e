// Package survey finds out where a cluster can be built: it reads what is stored, asks sites for room, and has
// cluster.Choose decide. Sites are asked at once, for a bounded time; one that does not answer is left alone for a
// while, and never holds up a request by more than that time.
package survey

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"croft"
	"croft/cluster"
	"golang.org/x/sync/errgroup"
)

// Config is what a survey needs.
type Config struct {
	Partition croft.PartitionID
	Records   Records
	Catalogue Catalogue
	Drivers   map[cluster.SiteType]cluster.Driver
	Vault     cluster.Vault                            // nil: no secret can be opened
	Images    func(name string) (cluster.Image, error) // of the cloud's own catalogue, NotFound; may be nil
	AllowedIP string                                   // CIDR of this server, for templates; may be empty
	Patience  time.Duration                            // how long a site may take to say whether it has room; 5 s
	Log       *slog.Logger
}

// Records is what it reads of clusters.
type Records interface {
	List(ctx context.Context, project croft.Project) ([]cluster.Cluster, error)
}

// Catalogue is what it reads of what clusters are built by.
type Catalogue interface {
	Sites(ctx context.Context) ([]cluster.Site, error)
	Credentials(ctx context.Context, project croft.Project, user string) ([]cluster.Credential, error)
	Implementations(ctx context.Context, appliance string) ([]cluster.Implementation, error)
	Images(ctx context.Context) ([]cluster.Image, error)
}

// Survey remembers for a short time what sites said. It may be used by many at once.
type Survey struct {
	c Config

	mu        sync.Mutex
	rooms     map[question]answer
	troubles  []trouble
	contracts map[cluster.ImplementationID]contract
}

// New returns a survey that has asked nothing yet.
func New(c Config) (*Survey, error) {
	if c.Partition == "" || c.Records == nil || c.Catalogue == nil || c.Log == nil {
		return nil, croft.Errorf(croft.Invalid, "survey: Partition, Records, Catalogue and Log are required")
	}
	if c.Patience == 0 {
		c.Patience = 5 * time.Second
	}
	return &Survey{c: c, rooms: map[question]answer{}, contracts: map[cluster.ImplementationID]contract{}}, nil
}

// Result says where a cluster can be built, best first, and why not elsewhere.
type Result struct {
	Candidates []cluster.Candidate
	Dropped    []cluster.Dropped
	Contracts  map[cluster.ImplementationID]cluster.Contract // of all implementations that could have been chosen
}

// Look asks where a request can be built; its ID is that of the cluster, its parameters hold the secret ones too.
// attempts are those that have failed already, and reuse is the site of a cluster that the request would join.
// Invalid: a hint names what does not exist, or no template takes the parameters.
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
	// What is of no use is not asked for room.
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

// CheckHints refuses hints that name what does not exist. It asks no site. Invalid.
func (s *Survey) CheckHints(ctx context.Context, r cluster.Request) error {
	w, err := s.world(ctx, r)
	if err != nil {
		return err
	}
	return cluster.CheckHints(r.Hints, w)
}

// world reads what is stored.
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

// Failures returns the builds that failed within the last hour, one for each cluster and site.
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
