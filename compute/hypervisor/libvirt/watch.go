package libvirt

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/vishvananda/netlink"
	"libvirt.org/go/libvirt"

	"croft"
	"croft/internal/delay"
	"croft/internal/mailbox"
)

// Initial and maximum interval of reconnection attempts.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// pollLeases is the polling interval for addresses where no events report changes.
const pollLeases = 2 * time.Second

// Watch calls wake for every instance whose domain or addresses changed, and for all of them after each new
// connection to libvirt. It returns only when ctx ends.
func (d *Driver) Watch(ctx context.Context, wake func(croft.InstanceID)) error {
	box, leave := d.changed.Join()
	defer leave()
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := watcher{conn: d.conn, log: d.log, domains: d.domains, owners: d.owners, changed: d.changed,
		refresh: d.network.refresh, leaseDir: d.config.LeaseDir}
	wg.Go(func() { w.stayConnected(ctx, box.Put) })
	wg.Go(func() { w.watchAddresses(ctx) })
	if d.config.Partition != "" {
		wg.Go(func() { d.network.keep(ctx, d.config.Partition) })
	}
	return box.Run(ctx, wake)
}

// watcher detects which instances changed.
type watcher struct {
	conn     *connection
	log      *slog.Logger
	domains  *domainReader
	owners   *ownerTable
	changed  *mailbox.Boxes[croft.InstanceID]
	refresh  chan<- struct{} // asks for a pass over the packet filter
	leaseDir string
}

// stayConnected maintains a connection, and so the events, until ctx ends.
func (w *watcher) stayConnected(ctx context.Context, put func(...croft.InstanceID)) {
	watching, retry := task{verb: "watch the domains"}, firstRetry
	for ctx.Err() == nil {
		lost, err := call(ctx, w.conn, watching, func(c *libvirt.Connect) (<-chan struct{}, error) {
			list, err := w.domains.all(c)
			if err != nil {
				return nil, err
			}
			for _, one := range list {
				put(one.ID)
			}
			return w.conn.lostSignal(c), nil
		})
		if err == nil {
			retry = firstRetry
			select {
			case <-lost:
				w.log.Info("the connection to libvirt is lost, connecting again", "op", "watch")
			case <-ctx.Done():
			}
			continue
		}
		if retry == firstRetry && ctx.Err() == nil {
			w.log.Warn("libvirt cannot be watched, trying again", "op", "watch", "err", err)
		}
		_ = delay.For(ctx, retry/2+rand.N(retry))
		retry = min(retry*2, lastRetry)
	}
}

// watchAddresses wakes the instances whose addresses changed. libvirt has no lease events, but its dnsmasq
// rewrites a file for each lease; the kernel reports neighbours on bridges.
func (w *watcher) watchAddresses(ctx context.Context) {
	changed := make(chan struct{}, 1)
	signal := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { w.watchNeighbours(ctx, signal) })
	wg.Go(func() { w.watchLeaseDir(ctx, signal) })

	known := map[croft.InstanceID]domain{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		w.owners.invalidate()
		now, err := call(ctx, w.conn, task{verb: "look up the addresses"}, w.domains.all)
		if err != nil {
			_ = delay.For(ctx, firstRetry)
			signal()
			continue
		}
		changes := addressChanges(known, now)
		w.changed.Put(changes...)
		if len(changes) > 0 {
			select {
			case w.refresh <- struct{}{}:
			default:
			}
		}
	}
}

// addressChanges returns the instances whose addresses differ from known, and updates known.
func addressChanges(known map[croft.InstanceID]domain, now []domain) []croft.InstanceID {
	var ids []croft.InstanceID
	present := map[croft.InstanceID]bool{}
	for _, one := range now {
		present[one.ID] = true
		if !slices.Equal(known[one.ID].Addresses, one.Addresses) {
			ids = append(ids, one.ID)
		}
		known[one.ID] = one
	}
	for id := range known {
		if !present[id] {
			delete(known, id)
		}
	}
	return ids
}

// watchLeaseDir signals when dnsmasq may have added or removed a lease. While the directory cannot be
// watched, as before the first network, it signals periodically instead.
func (w *watcher) watchLeaseDir(ctx context.Context, signal func()) {
	for ctx.Err() == nil {
		if err := followDir(ctx, w.leaseDir, signal); err != nil && ctx.Err() == nil {
			signal()
			_ = delay.For(ctx, pollLeases)
		}
	}
}

// followDir signals at once and for every change in dir. It returns nil when ctx ends, or an error when it
// cannot continue.
func followDir(ctx context.Context, dir string, signal func()) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer w.Close()
	if err := w.Add(dir); err != nil {
		return err
	}
	signal()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-w.Events:
			if !ok || e.Name == dir && e.Has(fsnotify.Remove|fsnotify.Rename) {
				return errors.New("the directory of leases was removed")
			}
			signal()
		case err := <-w.Errors:
			return err
		}
	}
}

// watchNeighbours signals when the host learns the address of a guest on a bridge. While the kernel sends no
// events, the agent's next pass finds such addresses.
func (w *watcher) watchNeighbours(ctx context.Context, signal func()) {
	for ctx.Err() == nil {
		w.followNeighbours(ctx, signal)
		_ = delay.For(ctx, pollLeases)
	}
}

// followNeighbours returns when ctx or the kernel's messages end: the kernel drops slow listeners.
func (w *watcher) followNeighbours(ctx context.Context, signal func()) {
	updates, done := make(chan netlink.NeighUpdate, 64), make(chan struct{})
	if err := netlink.NeighSubscribe(updates, done); err != nil {
		return
	}
	defer func() {
		close(done)
		for range updates { // until netlink notices and closes
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case u, ok := <-updates:
			if !ok {
				return
			}
			if _, guest := w.domains.bridged.Load(u.HardwareAddr.String()); guest {
				signal()
			}
		}
	}
}
