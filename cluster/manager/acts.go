package manager

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"croft"
	"croft/cluster"
)

// known adds the facts that Plan always gets.
func (m *Manager) known(ctx context.Context, c cluster.Cluster, l *cluster.Learned) {
	if sites, err := m.sites.all(ctx); err == nil {
		l.Timeout = cmp.Or(time.Duration(sites[c.Site].BuildTimeout), cluster.BuildTimeout)
	}
	if i, err := m.sites.implementation(ctx, c.Implementation); err == nil {
		l.Image = i.Image
	}
}

// act performs one act, and returns its result.
func (m *Manager) act(ctx context.Context, e *entry, c cluster.Cluster, do cluster.Act,
	l cluster.Learned) cluster.Learned {
	l = cluster.Learned{Did: do, Timeout: l.Timeout}
	switch do {
	case cluster.ActChoose:
		l.Candidates, l.Dropped, l.Err = m.choose(ctx, c)
		return l
	case cluster.ActLook:
		l.Seen, l.Err = m.look(ctx, e, c)
		return l
	}
	begun := time.Now()
	l.Err = m.sites.call(ctx, c, func(ctx context.Context, d cluster.Driver, at cluster.SiteAccess,
		b cluster.Build) (err error) {
		if do == cluster.ActBring {
			l.Placed = cluster.Placed{State: cluster.ImageReady}
			if b.Implementation.Image != "" {
				l.Placed, err = m.sites.bring(ctx, d, at, b.Implementation.Image)
			}
			return err
		}
		if do == cluster.ActDestroy {
			return d.Destroy(ctx, at, b)
		}
		if err := m.sites.fill(ctx, c, d, at, &b); err != nil {
			return err
		}
		if do == cluster.ActResize {
			return d.Resize(ctx, at, b)
		}
		l.Remote, err = d.Launch(ctx, at, b)
		return err
	})
	m.metrics.called(do, begun, l.Err)
	m.mu.Lock()
	e.acted, e.fresh = time.Now(), nil
	m.mu.Unlock()
	return l
}

// choose returns the candidates for a cluster.
func (m *Manager) choose(ctx context.Context, c cluster.Cluster) ([]cluster.Candidate, []cluster.Dropped, error) {
	given, err := cluster.GivenParameters(m.c.Vault, m.c.Partition, c)
	if err != nil {
		return nil, nil, err
	}
	found, err := m.survey.Look(ctx, cluster.Request{Project: c.Project, User: c.User, Spec: cluster.Spec{ID: c.ID,
		Name: c.Name, Appliance: c.Appliance, Slaves: len(c.Indexes), Hints: c.Hints, Parameters: given,
		Keys: c.Keys}}, c.Attempts, "")
	return found.Candidates, found.Dropped, err
}

// seal seals secret outputs into the record. It returns events for outputs that could not be sealed.
func (m *Manager) seal(c *cluster.Cluster, secrets map[string]any) (lost []cluster.Event) {
	if len(secrets) == 0 {
		return nil
	}
	c.Sealed = maps.Clone(c.Sealed)
	if c.Sealed == nil {
		c.Sealed = map[string]cluster.Sealed{}
	}
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		sealed, err := m.sealed(c.ID, name, secrets[name])
		if err != nil {
			delete(c.Sealed, name)
			lost = append(lost, cluster.Event{At: time.Now().UTC(), State: c.State,
				Message: fmt.Sprintf("output %s is secret and is not kept: %v", name, err)})
			continue
		}
		c.Sealed[name] = sealed
	}
	return lost
}

func (m *Manager) sealed(id croft.ClusterID, name string, value any) (cluster.Sealed, error) {
	if m.c.Vault == nil {
		return nil, croft.Errorf(croft.Unavailable, "there is no key to seal it with")
	}
	text, isText := value.(string)
	if !isText {
		encoded, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		text = string(encoded)
	}
	return m.c.Vault.Seal(cluster.NewSecret(text), cluster.AboutValue(m.c.Partition, id, name))
}

// look returns an observation of a cluster that started after the end of the last act.
func (m *Manager) look(ctx context.Context, e *entry, c cluster.Cluster) (*cluster.Seen, error) {
	m.mu.Lock()
	fresh := e.fresh
	e.fresh = nil
	if fresh != nil && (!fresh.begun.After(e.acted) || time.Since(fresh.begun) > pause) {
		fresh = nil
	}
	m.mu.Unlock()
	if fresh != nil {
		return fresh.seen, fresh.err
	}
	b, err := m.sites.build(ctx, c)
	if err != nil {
		return nil, err
	}
	answer := m.looks.ask(ctx, looking{place{c.Site, c.Credential}, b})
	select {
	case s := <-answer:
		return s.seen, s.err
	case <-ctx.Done():
		return nil, croft.Errorf(croft.Unavailable, "%w", context.Cause(ctx))
	}
}

// lookingAt returns the observation that a resting cluster is due for, or nil if it needs none.
func (m *Manager) lookingAt(ctx context.Context, c cluster.Cluster, next cluster.Next) *looking {
	if next.Pace == 0 || c.Site == "" || !c.Remote.Asked {
		return nil
	}
	b, err := m.sites.build(ctx, c)
	if err != nil {
		return nil
	}
	return &looking{place{c.Site, c.Credential}, b}
}

// soon returns the resting clusters at a place that are due for an observation soon.
func (m *Manager) soon(at place, but map[croft.ClusterID]waiter) (soon []cluster.Build) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, e := range m.entries {
		_, waits := but[id]
		if !waits && e.asleep != nil && e.asleep.place == at && time.Until(e.due) < lookAhead {
			soon = append(soon, e.asleep.build)
		}
	}
	return soon
}

// refresh gives a resting cluster a new observation of it.
func (m *Manager) refresh(ctx context.Context, id croft.ClusterID, s sight) {
	m.mu.Lock()
	e := m.entries[id]
	if e != nil && s.seen != nil {
		e.fresh, e.due = &s, time.Time{}
	}
	m.mu.Unlock()
	if e != nil && s.seen != nil {
		m.workers.Wake(ctx, id)
	}
}
