package survey

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"sync"
	"time"

	"croft"
	"croft/cluster"
	"croft/internal/wording"
)

// How long answers are cached. An answer of the local site is not cached: it is cheap, and changes with each request.
const (
	roomKept    = 30 * time.Second
	failureKept = 5 * time.Second
	maxRooms    = 1000
)

// question is the cache key of an answer.
type question struct {
	cluster.Place
	slaves     int
	parameters string // JSON
}

type answer struct {
	cluster.Room
	until time.Time
}

// ask asks the sites of all candidates for room, concurrently. The result has no entry for a place whose site did not
// answer.
func (s *Survey) ask(ctx context.Context, r cluster.Request, w cluster.World, all []cluster.Candidate) (
	rooms map[cluster.Place]cluster.Room) {
	rooms = map[cluster.Place]cluster.Room{}
	var mu sync.Mutex
	var asking sync.WaitGroup
	for _, c := range all {
		asking.Go(func() {
			room := s.cached(ctx, r, w, c)
			mu.Lock()
			defer mu.Unlock()
			rooms[c.Place()] = room
		})
	}
	asking.Wait()
	return rooms
}

func (s *Survey) cached(ctx context.Context, r cluster.Request, w cluster.World, c cluster.Candidate) cluster.Room {
	b := s.build(r, w, c)
	// Parameters are part of the cache key, since one may be a flavor; cluster and keys are not. Values that cannot be
	// encoded were rejected before.
	alike := maps.Clone(b.Parameters)
	delete(alike, cluster.ParamCluster)
	delete(alike, cluster.ParamKeys)
	parameters, _ := json.Marshal(alike)
	q := question{c.Place(), r.Slaves, string(parameters)}
	now := time.Now()
	s.mu.Lock()
	a, found := s.rooms[q]
	s.mu.Unlock()
	if found && now.Before(a.until) {
		return a.Room
	}
	room, kept := s.fresh(ctx, c.Site, c.Credential, b)
	if kept == 0 {
		return room
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.rooms) >= maxRooms {
		clear(s.rooms)
	}
	s.rooms[q] = answer{room, now.Add(kept)}
	return room
}

// build returns the build that a site is asked room for.
func (s *Survey) build(r cluster.Request, w cluster.World, c cluster.Candidate) cluster.Build {
	b := cluster.Build{Partition: s.c.Partition, Cluster: r.ID, Name: r.Name, Project: r.Project, User: r.User,
		Implementation: c.Implementation, Image: c.Implementation.Image, Timeout: BuildTimeout(c.Site)}
	for i := range r.Slaves {
		b.Indexes = append(b.Indexes, i)
	}
	f := w.Filling
	f.Site, f.Implementation, f.Image = c.Site, c.Implementation, c.Implementation.Image
	if declared, known := w.Contracts[c.Implementation.ID]; known {
		b.Parameters, _, _ = cluster.Fill(declared, f) // cannot fail: the implementation would not be a candidate
	}
	return b
}

// BuildTimeout returns the timeout of builds at a site.
func BuildTimeout(s cluster.Site) time.Duration {
	return cmp.Or(time.Duration(s.BuildTimeout), cluster.BuildTimeout)
}

// fresh asks a site, and returns how long the answer may be cached.
func (s *Survey) fresh(ctx context.Context, site cluster.Site, credential cluster.Credential, b cluster.Build) (
	cluster.Room, time.Duration) {
	room, err := s.Room(ctx, site, credential, b)
	switch {
	case err == nil && site.Type == cluster.Local:
		return room, 0
	case err == nil:
		return room, roomKept
	case ctx.Err() != nil:
		return room, 0
	case errors.Is(err, croft.Denied):
		return cluster.Room{Known: true, Why: "the site refuses credential " + credential.Name}, failureKept
	case errors.Is(err, croft.Invalid):
		return cluster.Room{Known: true, Why: err.Error()}, failureKept
	}
	s.c.Log.Warn("site did not say whether it has room", "site", site.Name, "err", err)
	return cluster.Room{}, failureKept
}

// Room asks a site whether a build fits, for a bounded time. Unavailable: the site does not answer.
func (s *Survey) Room(ctx context.Context, site cluster.Site, credential cluster.Credential, b cluster.Build) (
	cluster.Room, error) {
	driver := s.c.Drivers[site.Type]
	if driver == nil {
		return cluster.Room{}, croft.Errorf(croft.Unavailable, "this server cannot reach sites of type %s", site.Type)
	}
	at, err := s.Access(site, credential)
	if err != nil {
		return cluster.Room{Known: true, Why: err.Error()}, nil
	}
	asking, cancel := context.WithTimeout(ctx, s.c.Patience)
	defer cancel()
	room, err := driver.Room(asking, at, b)
	if err != nil && ctx.Err() == nil && asking.Err() != nil {
		err = cluster.Silent(croft.Errorf(croft.Unavailable, "it does not respond within %s: %w",
			wording.Duration(s.c.Patience), err))
	}
	if ctx.Err() == nil {
		s.Note(at, err)
	}
	if errors.Is(err, croft.Unavailable) {
		return cluster.Room{}, croft.Errorf(croft.Unavailable, "site %s: %w", site.Name, err)
	}
	return room, err
}

// Access returns the data to call a site, with the opened secret. Unavailable: there is no key for the secret.
func (s *Survey) Access(site cluster.Site, c cluster.Credential) (cluster.SiteAccess, error) {
	at := cluster.SiteAccess{Partition: s.c.Partition, Site: site, Credential: c}
	if c.ID == "" {
		return at, nil
	}
	if s.c.Vault == nil {
		return at, croft.Errorf(croft.Unavailable, "credential %s is sealed, and there is no key to open it with",
			c.Name)
	}
	secret, err := s.c.Vault.Open(c.Secret, cluster.AboutCredential(s.c.Partition, c))
	if err != nil {
		return at, croft.Errorf(croft.Unavailable, "credential %s cannot be opened: %w", c.Name, err)
	}
	at.Secret = secret
	return at, nil
}
