package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"croft"
	"croft/cluster"
)

// bringTime bounds one call of Bring; the hosts keep what they have downloaded, and the next call continues.
const bringTime = 30 * time.Second

// Bring implements cluster.Driver: all hosts that accept orders fetch the image. A silent host fetches it when it needs
// it.
func (d *Driver) Bring(ctx context.Context, _ cluster.SiteAccess, i cluster.SiteImage) (cluster.Placed, error) {
	ref := i.URL
	if i.SHA256 != "" {
		ref += "#sha256=" + i.SHA256
	}
	ref, err := d.ResolveImage(cmp.Or(ref, i.Name))
	if err != nil {
		return cluster.Placed{State: cluster.ImageFailed, Error: err.Error()}, nil
	}
	placed := cluster.Placed{Ref: ref, State: cluster.ImageReady}
	if d.Pull == nil {
		return placed, nil
	}
	hosts, err := d.Scheduler.Registry.Hosts(ctx)
	if err != nil {
		return cluster.Placed{}, err
	}
	var take []croft.Host
	for _, h := range hosts {
		if takesOrders(h) {
			take = append(take, h)
		}
	}
	return d.pull(ctx, i.Name, placed, take)
}

// pull makes hosts fetch an image, for a bounded time.
func (d *Driver) pull(ctx context.Context, name string, placed cluster.Placed, hosts []croft.Host) (cluster.Placed,
	error) {
	pulling, cancel := context.WithTimeout(ctx, bringTime)
	defer cancel()
	var mu sync.Mutex
	got := map[croft.HostID]croft.Progress{}
	under := 0
	err := each(hosts, func(h croft.Host) error {
		err := d.Pull(pulling, h, name, placed.Ref, func(p croft.Progress) {
			mu.Lock()
			defer mu.Unlock()
			got[h.ID] = p
		})
		switch {
		case err == nil || croft.KindOf(err) == croft.Unavailable && pulling.Err() == nil:
			return nil
		case pulling.Err() != nil && ctx.Err() == nil:
			mu.Lock()
			defer mu.Unlock()
			under++
			return nil
		}
		return fmt.Errorf("host %s: %w", h.Name, err)
	})
	for _, p := range got {
		placed.Done += p.Done
		placed.Total += max(p.Total, p.Done)
	}
	switch {
	case ctx.Err() != nil:
		return cluster.Placed{}, errors.Join(ctx.Err(), err)
	case err != nil:
		placed.State, placed.Error = cluster.ImageFailed, bounded(err.Error())
	case under > 0:
		placed.State = cluster.ImageUploading
	}
	return placed, nil
}
