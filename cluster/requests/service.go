// Package requests handles the requests of users for clusters: it creates records, lets requests join existing
// clusters, and changes the wanted state. It asks sites only for room: cluster/manager brings clusters to their wanted
// state. Any number of servers may do this concurrently, since every change is one compare-and-write; two concurrent
// requests to add a host make a cluster larger by two.
package requests

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"croft"
	"croft/cluster"
	"croft/cluster/outbound"
	"croft/cluster/survey"
	"croft/internal/nearest"
	"croft/internal/sighting"
	"croft/tenant"
)

// Config configures the service.
type Config struct {
	cluster.Backends

	Quotas tenant.Quotas // nil: explanations leave out quotas
	// shared with the manager, if there is one in this process; nil: an own one
	Survey *survey.Survey
	// Dial connects to the agents of appliances; a net.Dialer by default.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Outbound decides which addresses are called that templates of other sites name.
	Outbound outbound.Rule
}

// Service manages clusters, each named by its ID or by its name in the project. Its methods return NotFound for others.
type Service struct {
	c      Config
	survey *survey.Survey
	agents agents
	marks  sighting.First[sighted] // marks that this server has found
}

// New returns a service. It starts nothing.
func New(c Config) (*Service, error) {
	if c.Partition == "" || c.Records == nil || c.Catalogue == nil || c.Accounts == nil || c.Log == nil {
		return nil, croft.Errorf(croft.Invalid,
			"requests: Partition, Records, Catalogue, Accounts and Log are required")
	}
	looking := c.Survey
	if looking == nil {
		var err error
		looking, err = survey.New(survey.Config{Backends: c.Backends})
		if err != nil {
			return nil, err
		}
	}
	if c.Dial == nil {
		c.Dial = (&net.Dialer{}).DialContext
	}
	return &Service{c: c, survey: looking, agents: newAgents(c.Dial)}, nil
}

// Find returns a cluster. A deleted cluster is found by its ID for cluster.Remembered.
func (s *Service) Find(ctx context.Context, project croft.Project, idOrName string) (cluster.Cluster, error) {
	if id, err := croft.ParseClusterID(idOrName); err == nil {
		c, err := s.c.Records.Get(ctx, id)
		if err == nil && !gone(c) && (project == "" || c.Project == project) {
			return c, nil
		}
		if err != nil && !errors.Is(err, croft.NotFound) {
			return cluster.Cluster{}, err
		}
	}
	c, err := s.c.Records.Named(ctx, project, idOrName)
	if errors.Is(err, croft.NotFound) {
		return c, croft.Errorf(croft.NotFound, "project %s has no cluster %.80q", project, idOrName)
	}
	return c, err
}

// gone reports whether a cluster ended so long ago that it is not shown any more.
func gone(c cluster.Cluster) bool {
	return c.State == cluster.Deleted && time.Since(c.Ended) > cluster.Remembered
}

// List returns the clusters of a project that are not deleted, by name; an empty project means all projects.
func (s *Service) List(ctx context.Context, project croft.Project, f cluster.Filter) ([]cluster.Cluster, error) {
	if f.State != "" && !slices.Contains(cluster.States, f.State) {
		var words []string
		for _, state := range cluster.States {
			words = append(words, string(state))
		}
		return nil, croft.Errorf(croft.Invalid, "there is no state %.80q%s", string(f.State),
			nearest.Hint(string(f.State), words))
	}
	read := s.c.Records.Living
	if project == "" {
		read = s.c.Records.List
	}
	all, err := read(ctx, project)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(c cluster.Cluster) bool {
		return c.State == cluster.Deleted || f.State != "" && c.State != f.State || f.Site != "" && c.Site != f.Site ||
			f.Appliance != "" && cluster.ApplianceName(c.Appliance) != f.Appliance
	}), nil
}

// Events returns the events of a cluster, oldest first.
func (s *Service) Events(ctx context.Context, project croft.Project, idOrName string) ([]cluster.Event, error) {
	c, err := s.Find(ctx, project, idOrName)
	if err != nil {
		return nil, err
	}
	return s.c.Records.Events(ctx, c.ID)
}

// note appends an event. Events are for people, so a lost event fails no request.
func (s *Service) note(ctx context.Context, c cluster.Cluster, format string, args ...any) {
	e := cluster.Event{At: time.Now().UTC(), State: c.State, Message: fmt.Sprintf(format, args...)}
	if err := s.c.Records.Note(context.WithoutCancel(ctx), c, e); err != nil {
		s.c.Log.Warn("event was lost", "cluster", c.ID, "event", e.Message, "err", err)
	}
}

// appliance returns the appliance that a name means in a project, with its unique name. NotFound.
func (s *Service) appliance(ctx context.Context, project croft.Project, name string) (cluster.Appliance, error) {
	a, err := s.c.Catalogue.Appliance(ctx, cluster.ScopedAppliance(project, name))
	if err == nil && (a.Public || a.Project == project) || err != nil && !errors.Is(err, croft.NotFound) {
		return a, err
	}
	all, err := s.c.Catalogue.Appliances(ctx, project)
	if err != nil {
		return cluster.Appliance{}, err
	}
	var names []string
	for _, a := range all {
		if !a.Public && a.Project != project {
			continue
		}
		names = append(names, cluster.ApplianceName(a.Name))
	}
	return cluster.Appliance{}, croft.Errorf(croft.NotFound, "there is no appliance %.80q%s", name,
		nearest.Hint(name, names))
}
