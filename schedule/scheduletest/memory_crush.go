package scheduletest

import (
	"context"
	"maps"

	"croft"
	"croft/schedule"
)

// Crush are the CRUSH policies and numbers of a Memory.
type Crush struct{ *Memory }

var _ schedule.Crush = Crush{}

// Put stores a policy, and replaces the one of this name; without a text it removes the policy.
func (m Crush) Put(ctx context.Context, name, text string) error {
	return m.write(ctx, func() error {
		if m.policies[name] = (croft.CrushPolicy{Name: name, Text: text, Generation: m.revision}); text == "" {
			delete(m.policies, name)
		}
		return nil
	})
}

// Find implements schedule.Crush.
func (m Crush) Find(ctx context.Context, name string) (croft.CrushPolicy, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, there := m.policies[name]
	if !there {
		return p, croft.Errorf(croft.NotFound, "there is no policy %q", name)
	}
	return p, ctx.Err()
}

// Numbers implements schedule.Crush.
func (m Crush) Numbers(ctx context.Context) (croft.CrushNumbers, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return croft.CrushNumbers{Hosts: maps.Clone(m.numbers.Hosts), Locations: maps.Clone(m.numbers.Locations)}, ctx.Err()
}

// Number implements schedule.Crush. Numbers are never freed, so the next number is the count.
func (m Crush) Number(ctx context.Context, hosts []croft.HostID, locations []string) error {
	return m.write(ctx, func() error {
		for _, id := range hosts {
			if _, there := m.numbers.Hosts[id]; !there {
				m.numbers.Hosts[id] = int32(len(m.numbers.Hosts))
			}
		}
		for _, name := range locations {
			if _, there := m.numbers.Locations[name]; !there {
				m.numbers.Locations[name] = int32(len(m.numbers.Locations))
			}
		}
		return nil
	})
}
