package top

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"croft"
	"croft/cli/args"
	"croft/control/api"
	"croft/hosts"
	"croft/internal/delay"
)

// mirror is a copy of all hosts and instances that the caller sees; callers who are not operators see no hosts. It
// lists everything again after changes, at most once per pause, and at least once per resync, because the cloud does
// not report changes of hosts.
type mirror struct {
	*args.Client

	mu        sync.Mutex
	ready     bool
	hosts     []hosts.Host
	instances []api.Instance
	err       error
}

// pause is the shortest, and resync the longest time between two updates of the mirror.
const (
	pause  = time.Second
	resync = 5 * time.Second
)

// Run keeps the copy up to date until ctx ends, and calls changed after each change.
func (m *mirror) Run(ctx context.Context, changed func()) error {
	wake, watched := make(chan struct{}, 1), make(chan error, 1)
	ctx, end := context.WithCancel(ctx)
	go func() {
		watched <- m.WatchInstances(ctx, func() {
			select {
			case wake <- struct{}{}:
			default: // it is already awake
			}
		})
	}()
	stop := func(err error) error {
		end()
		return cmp.Or(<-watched, err)
	}
	for {
		if m.look(ctx); ctx.Err() == nil {
			changed()
		}
		if err := delay.For(ctx, pause); err != nil {
			return stop(err)
		}
		select {
		case <-wake:
		case <-time.After(resync):
		case err := <-watched:
			end()
			return err
		case <-ctx.Done():
			return stop(ctx.Err())
		}
	}
}

// look lists everything. Data that cannot be listed stays unchanged.
func (m *mirror) look(ctx context.Context) {
	all, err := m.AllInstances(ctx, api.InstanceFilter{})
	list, noHosts := m.ListHosts(ctx)
	if croft.KindOf(noHosts) == croft.Denied {
		noHosts = nil // the caller is not an operator
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err = cmp.Or(noHosts, list.Incomplete(), err); ctx.Err() != nil {
		return
	}
	if m.err == nil && len(list.Problems) > 0 {
		m.err = errors.New(list.Problems[0])
	}
	if err == nil {
		m.instances = all
	}
	if noHosts == nil {
		m.hosts = nil
		for _, h := range list.Hosts {
			m.hosts = append(m.hosts, h.Host)
		}
	}
	m.ready = m.ready || err == nil && noHosts == nil
}

// Ready reports whether everything has been read once.
func (m *mirror) Ready() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ready
}

// Look returns the copy, and an error if something could not be read or the store of the cloud has a problem.
func (m *mirror) Look() ([]hosts.Host, []api.Instance, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.hosts, m.instances, m.err
}
