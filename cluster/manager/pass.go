package manager

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"croft"
	"croft/cluster"
)

// maxActs bounds the acts of one pass.
const maxActs = 20

// pass advances one cluster as far as possible now.
func (m *Manager) pass(ctx context.Context, id croft.ClusterID) {
	e := m.entry(id)
	c, err := m.c.Records.Get(ctx, id)
	switch {
	case errors.Is(err, croft.NotFound):
		m.forget(id)
		return
	case err != nil:
		m.trouble(id, "read", err)
		return
	case m.early(e, c):
		m.sleep(id, time.Until(e.due))
		return
	}
	m.note(e, c)
	m.awake(e)
	if c.State == cluster.Deleted && time.Since(c.Ended) < cluster.Remembered {
		m.release(ctx, e)
		m.sleep(id, time.Until(c.Ended.Add(cluster.Remembered)))
		m.remember(ctx, c)
		return
	}
	if e.holder == nil {
		holder, err := m.c.Records.Hold(ctx, id)
		if err != nil {
			m.stand(id, e, err)
			return
		}
		m.held(e, holder)
		if c, err = m.c.Records.Get(ctx, id); err != nil { // as its last holder left it
			m.release(ctx, e)
			m.trouble(id, "read", err)
			return
		}
	}
	m.work(ctx, e, c)
}

// early reports whether a wake was caused by the manager's own write, or concerns a cluster that another manager holds.
func (m *Manager) early(e *entry, c cluster.Cluster) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return (e.standing || e.holder != nil && e.revised == c.Revised) && time.Now().Before(e.due)
}

// awake ends the sleep of a cluster: observations for other clusters do not include it any more.
func (m *Manager) awake(e *entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e.asleep, e.standing = nil, false
}

// held starts a hold: another manager may have changed the site since the older observations.
func (m *Manager) held(e *entry, h *cluster.Holder) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e.holder, e.held, e.acted, e.fresh = h, time.Now(), time.Now(), nil
}

// stand waits for another manager to release a cluster.
func (m *Manager) stand(id croft.ClusterID, e *entry, err error) {
	if !errors.Is(err, croft.Conflict) {
		m.trouble(id, "hold", err)
		return
	}
	m.mu.Lock()
	e.standing = true
	m.mu.Unlock()
	m.sleep(id, m.c.Standby+rand.N(m.c.Standby/3+1))
}

func (m *Manager) trouble(id croft.ClusterID, what string, err error) {
	if m.run.Err() == nil {
		m.c.Log.Warn("the store does not serve a cluster", "cluster", id, "op", what, "err", err)
	}
	m.sleep(id, pause+rand.N(pause))
}

// work performs the decisions of Plan until ActRest.
func (m *Manager) work(ctx context.Context, e *entry, c cluster.Cluster) {
	var learned cluster.Learned
	for range maxActs {
		m.known(ctx, c, &learned)
		learned.Held = e.held
		next := cluster.Plan(c, learned, time.Now().UTC())
		if next.Over && m.clocks.differ(ctx) {
			learned.ClocksDiffer = true
			next = cluster.Plan(c, learned, time.Now().UTC())
		}
		acting := next.Do == cluster.ActLaunch || next.Do == cluster.ActResize || next.Do == cluster.ActDestroy
		if next.Changed || acting { // the write before an act verifies that the cluster is still held
			var err error
			if c, err = m.write(ctx, e, next); err != nil {
				m.unwritten(ctx, e, c.ID, err)
				return
			}
		}
		switch next.Do {
		case cluster.ActRest:
			m.rest(ctx, e, c, next)
			return
		case cluster.ActForget:
			m.bury(ctx, e, c.ID)
			return
		}
		learned = m.act(ctx, e, c, next.Do, learned)
		if ctx.Err() != nil {
			return
		}
	}
	m.c.Log.Error("a cluster needs too many acts at once", "cluster", c.ID)
	m.sleep(c.ID, pause)
}

// write writes a record, and appends the events.
func (m *Manager) write(ctx context.Context, e *entry, next cluster.Next) (cluster.Cluster, error) {
	c := next.Record
	lost := m.seal(&c, next.Secrets)
	c.Updated = time.Now().UTC()
	written, err := m.c.Records.Update(ctx, c, e.holder)
	if err != nil {
		return c, err
	}
	m.note(e, written)
	for _, event := range append(next.Events, lost...) {
		m.c.Log.Info("cluster", "cluster", c.ID, "name", c.Name, "site", c.Site, "state", event.State, "reason",
			event.Message)
		if err := m.c.Records.Note(ctx, written, event); err != nil {
			m.c.Log.Warn("an event of a cluster is lost", "cluster", c.ID, "event", event.Message, "err", err)
		}
	}
	return written, nil
}

// unwritten handles a failed write: the record was changed, or another manager holds the cluster.
func (m *Manager) unwritten(ctx context.Context, e *entry, id croft.ClusterID, err error) {
	if !errors.Is(err, croft.Conflict) {
		m.trouble(id, "write", err)
		return
	}
	m.release(ctx, e)
	m.sleep(id, 0)
}

func (m *Manager) release(ctx context.Context, e *entry) {
	if e.holder == nil {
		return
	}
	if err := m.c.Records.Release(ctx, e.holder); err != nil {
		m.c.Log.Debug("a hold was not released: its lease ends", "cluster", e.holder.Cluster, "err", err)
	}
	m.mu.Lock()
	e.holder = nil
	m.mu.Unlock()
}

// rest sleeps until the time that Plan returned.
func (m *Manager) rest(ctx context.Context, e *entry, c cluster.Cluster, next cluster.Next) {
	after := time.Duration(-1)
	if next.Pace > 0 {
		after = next.Pace
		if after > 2*time.Second { // so that clusters that started together do not stay in step
			after = after/2 + rand.N(after)
		}
	}
	if !next.At.IsZero() {
		if at := max(time.Until(next.At), 0); after < 0 || at < after {
			after = at
		}
	}
	looking := m.lookingAt(ctx, c, next)
	m.mu.Lock()
	e.revised, e.asleep = c.Revised, looking
	m.mu.Unlock()
	if after < 0 {
		after = time.Hour // nothing is awaited; the record has the state
	}
	m.sleep(c.ID, after)
	if c.State == cluster.Deleted {
		m.remember(ctx, c)
	}
}

// bury forgets a tombstone.
func (m *Manager) bury(ctx context.Context, e *entry, id croft.ClusterID) {
	err := m.c.Records.Forget(ctx, id)
	m.release(ctx, e)
	if err != nil && !errors.Is(err, croft.NotFound) {
		m.trouble(id, "forget", err)
		return
	}
	m.forget(id)
}

// note stores the state of a cluster for metrics.
func (m *Manager) note(e *entry, c cluster.Cluster) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e.state, e.removal = c.State, time.Time{}
	if c.State == cluster.Deleting {
		e.removal = c.Retry.Since
	}
}
