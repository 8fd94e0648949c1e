package client

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"croft"
	"croft/compute"
	"croft/control/api"
	"croft/control/cloud"
	"croft/internal/delay"
)

// monitor implements cloud.Monitor. Callers who are not operators see their instances, but no hosts.
type monitor struct{ *Client }

// Mirror implements cloud.Monitor.
func (m monitor) Mirror() cloud.Mirror { return &mirror{Client: m.Client} }

// Usable implements cloud.Monitor.
func (m monitor) Usable(ctx context.Context) error {
	list, err := hostList(m).read(ctx)
	switch {
	case croft.KindOf(err) == croft.Denied:
		_, err = m.Root(ctx)
		return err
	case err != nil:
		return err
	case list.Error != "":
		return croft.Errorf(croft.Unavailable, "%s", list.Error)
	case len(list.Problems) > 0:
		return croft.Errorf(croft.Unavailable, "%s", list.Problems[0])
	}
	return nil
}

// Providers implements cloud.Monitor. An inventory only has the total that may be claimed.
func (m monitor) Providers(ctx context.Context) ([]croft.Provider, error) {
	list, err := hostList(m).read(ctx)
	if croft.KindOf(err) == croft.Denied {
		return nil, nil
	}
	var all []croft.Provider
	for _, h := range list.Hosts {
		p := croft.Provider{ID: h.ID, Name: h.Name, Traits: h.Traits, Used: h.Claimed,
			Inventories: map[croft.ResourceClass]croft.Inventory{}}
		for class, amount := range h.Offered {
			p.Inventories[class] = croft.Inventory{Total: amount, MinUnit: 1, MaxUnit: amount, StepSize: 1,
				AllocationRatio: 1}
		}
		if h.Offered != nil {
			all = append(all, p)
		}
	}
	return all, err
}

// Usages implements cloud.Monitor.
func (m monitor) Usages(ctx context.Context, host croft.Host) ([]compute.Usage, error) {
	list, err := m.ListUsages(ctx, api.HostNamed{ID: string(host.ID)})
	return list.Usages, hostList(m).denied(ctx, err)
}

// mirror implements cloud.Mirror. It lists everything again after changes, at most once per pause, and at least once
// per resync, because the cloud does not report changes of hosts.
type mirror struct {
	*Client

	mu        sync.Mutex
	ready     bool
	hosts     []croft.Host
	instances []croft.Status
	err       error
}

// pause is the shortest, and resync the longest time between two updates of the mirror.
const (
	pause  = time.Second
	resync = 5 * time.Second
)

// Run implements cloud.Mirror.
func (m *mirror) Run(ctx context.Context, changed func()) error {
	wake, watched := make(chan struct{}, 1), make(chan error, 1)
	ctx, end := context.WithCancel(ctx)
	go func() {
		watched <- instances{m.Client}.Watch(ctx, func() {
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
	all, err := instances{m.Client}.List(ctx, "")
	records, noHosts := hostList{m.Client}.List(ctx)
	if croft.KindOf(noHosts) == croft.Denied {
		noHosts = nil // the caller is not an operator
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err = errors.Join(err, noHosts); ctx.Err() != nil {
		return
	}
	if err == nil {
		m.instances = all
	}
	if len(records) > 0 || noHosts == nil {
		m.hosts = nil
		for _, h := range records {
			m.hosts = append(m.hosts, h.Host)
		}
	}
	m.ready = m.ready || err == nil && (len(records) > 0 || noHosts == nil)
}

// Ready implements cloud.Mirror.
func (m *mirror) Ready() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ready
}

// Look implements cloud.Mirror.
func (m *mirror) Look() ([]croft.Host, []croft.Status, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.hosts, m.instances, m.err
}
