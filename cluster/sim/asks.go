package sim

import (
	"context"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"croft"
	"croft/cluster"
)

// template is an implementation at a site of type sim, in YAML.
type template struct {
	Parameters map[string]parameter `yaml:"parameters"`
	Outputs    map[string]any       `yaml:"outputs"` // constants, in addition to master_ip and hosts
}

type parameter struct {
	Type    string `yaml:"type"`
	Default any    `yaml:"default"`
	Hidden  bool   `yaml:"hidden"`
}

func parse(i cluster.Implementation) (template, error) {
	var t template
	if strings.TrimSpace(i.Template) == "" {
		return t, nil
	}
	d := yaml.NewDecoder(strings.NewReader(i.Template))
	d.KnownFields(true)
	if err := d.Decode(&t); err != nil {
		return t, croft.Errorf(croft.Invalid, "the template is not one for a site of type sim: %w", err)
	}
	return t, nil
}

// templateOf parses an implementation that Check has accepted.
func templateOf(i cluster.Implementation) template {
	t, _ := parse(i)
	return t
}

// Check implements cluster.Driver.
func (s *Site) Check(_ context.Context, i cluster.Implementation) (cluster.Contract, error) {
	t, err := parse(i)
	if err != nil {
		return cluster.Contract{}, err
	}
	c := cluster.Contract{RemoveNamed: true, Declared: map[string]cluster.Declared{}}
	for name, p := range t.Parameters {
		if !slices.Contains(cluster.ParameterTypes, p.Type) {
			return c, croft.Errorf(croft.Invalid, "parameter %s has the type %.80q: use one of %s", name, p.Type,
				strings.Join(cluster.ParameterTypes, ", "))
		}
		c.Declared[name] = cluster.Declared{Type: p.Type, Default: p.Default != nil, Hidden: p.Hidden}
	}
	return c, nil
}

// Probe implements cluster.Driver.
func (s *Site) Probe(ctx context.Context, at cluster.SiteAccess) (cluster.Probe, error) {
	err := s.call(ctx, at, "probe", func(*place, time.Time) error { return nil })
	if err != nil {
		return cluster.Probe{}, err
	}
	return cluster.Probe{Version: "sim", Builds: true, Accepted: at.Credential.ID != ""}, nil
}

// Room implements cluster.Driver.
func (s *Site) Room(ctx context.Context, at cluster.SiteAccess, b cluster.Build) (cluster.Room, error) {
	var room cluster.Room
	err := s.call(ctx, at, "ask for room", func(p *place, _ time.Time) error {
		members := len(b.Indexes)
		if !b.Growth {
			members++
		}
		room = cluster.Room{Known: true, Why: p.full(members), Free: 1}
		room.Fits = room.Why == ""
		if limit := p.faults.Room; limit > 0 {
			room.Free = 0
			for more := members; more < limit && p.full(more+1) == ""; more++ {
				room.Free += 1 / float64(limit)
			}
		}
		return nil
	})
	if err != nil {
		return cluster.Room{}, err
	}
	return room, nil
}

// imageSize is the simulated size of each image, in bytes.
const imageSize = 1 << 30

// Bring implements cluster.Driver: an image arrives after the delay of the place.
func (s *Site) Bring(ctx context.Context, at cluster.SiteAccess, i cluster.SiteImage) (cluster.Placed, error) {
	var placed cluster.Placed
	err := s.call(ctx, at, "bring image "+i.Name, func(p *place, now time.Time) error {
		begun, found := p.images[i.Name]
		if !found {
			begun, p.images[i.Name] = now, now
		}
		done := float64(now.Sub(begun)) / float64(p.delay())
		placed = cluster.Placed{State: cluster.ImageUploading, Total: imageSize, Done: int64(min(done, 1) * imageSize)}
		if done >= 1 && !p.faults.Frozen {
			placed.Ref, placed.State = "sim:"+i.Name, cluster.ImageReady
		}
		return nil
	})
	if err != nil {
		return cluster.Placed{}, err
	}
	return placed, nil
}
