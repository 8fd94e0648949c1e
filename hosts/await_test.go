package hosts_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/hosts"
)

// travellers are instances that a test moves.
type travellers struct {
	mu      sync.Mutex
	all     map[croft.InstanceID]croft.Status
	changed func()
}

func (m *travellers) Find(_ context.Context, _ croft.Project, id string) (croft.Status, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	st, ok := m.all[croft.InstanceID(id)]
	if !ok {
		return st, croft.Errorf(croft.NotFound, "there is no instance %s", id)
	}
	return st, nil
}

func (m *travellers) WatchInstances(ctx context.Context, changed func()) error {
	m.mu.Lock()
	m.changed = changed
	m.mu.Unlock()
	changed()
	<-ctx.Done()
	return ctx.Err()
}

// set changes an instance; nil: it is gone.
func (m *travellers) set(id croft.InstanceID, st *croft.Status) {
	m.mu.Lock()
	if delete(m.all, id); st != nil {
		m.all[id] = *st
	}
	changed := m.changed
	m.mu.Unlock()
	if changed != nil {
		changed()
	}
}

func TestAMoveIsAwaitedUntilTheOldHostHasNothing(t *testing.T) {
	from, to := croft.NewHostID(), croft.NewHostID()
	a, b, stays := croft.NewInstanceID(), croft.NewInstanceID(), croft.NewInstanceID()
	at := func(id croft.InstanceID, host croft.HostID, seen croft.HostID, state croft.State) *croft.Status {
		st := &croft.Status{Instance: croft.Instance{ID: id, Host: host, MovedFrom: from}}
		if seen != "" {
			st.Observation = &croft.Observation{Host: seen, Instance: id, State: state}
		}
		return st
	}
	all := []hosts.Moved{{Instance: croft.Instance{ID: a}, To: croft.Host{ID: to}},
		{Instance: croft.Instance{ID: b}, To: croft.Host{ID: to}},
		{Instance: croft.Instance{ID: stays}, Stays: "it has a disk"}}
	synctest.Test(t, func(t *testing.T) {
		m := &travellers{all: map[croft.InstanceID]croft.Status{}}
		m.set(a, at(a, to, from, croft.StateRunning))
		m.set(b, at(b, to, "", ""))
		m.set(stays, at(stays, from, from, croft.StateRunning))
		done := make(chan error, 1)
		go func() { done <- hosts.AwaitMoved(t.Context(), m, from, all) }()
		for _, step := range []func(){
			func() { m.set(a, at(a, to, to, croft.StatePending)) },
			func() { m.set(a, at(a, to, to, croft.StateFetching)) },
			func() { m.set(b, at(b, from, to, croft.StateRunning)) }, // it was moved back
		} {
			step()
			synctest.Wait()
			select {
			case err := <-done:
				t.Fatalf("it is not waited for: %v", err)
			default:
			}
		}
		m.set(b, nil)
		if err := <-done; err != nil {
			t.Error(err)
		}
		m.set(a, at(a, to, to, croft.StatePending))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begun := time.Now()
		if err := hosts.AwaitMoved(ctx, m, from, all); croft.KindOf(err) != croft.Unavailable ||
			time.Since(begun) != time.Minute {
			t.Errorf("got %v after %s", err, time.Since(begun))
		}
		if err := hosts.AwaitMoved(t.Context(), m, from, all[2:]); err != nil {
			t.Errorf("nothing moves: %v", err)
		}
	})
}
