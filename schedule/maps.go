package schedule

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"croft"
	"croft/internal/share"
	"croft/schedule/crushmap"
)

// crushMaps caches the newest CRUSH map of the hosts, because reading many hosts takes long.
type crushMaps struct {
	numbers   Crush
	hosts     func(context.Context) (map[croft.HostID]croft.Host, error)
	providers func(context.Context) ([]croft.Provider, error)

	reading *share.Read[*crushmap.Map]
	newest  atomic.Pointer[keptMap]
}

// keptMap is a map, the time at which reading it started, and how long that took.
type keptMap struct {
	*crushmap.Map
	begun time.Time
	took  time.Duration
}

// age returns for how long a map is used for requests other than the one that read it: at most 1/20 of the time is
// spent on reading. Whether a chosen host takes orders is read again for each request.
func (k *keptMap) age() time.Duration { return max(time.Second, 20*k.took) }

// get returns a map that was read after a time, or if the time is zero, recently.
func (c *crushMaps) get(ctx context.Context, after time.Time) (*crushmap.Map, error) {
	kept := func() *crushmap.Map {
		k := c.newest.Load()
		if k != nil && (k.begun.After(after) && !after.IsZero() || after.IsZero() && time.Since(k.begun) < k.age()) {
			return k.Map
		}
		return nil
	}
	if m := kept(); m != nil {
		return m, nil
	}
	return c.reading.Get(ctx, func(ctx context.Context) (*crushmap.Map, error) {
		if m := kept(); m != nil { // another request read it while this one waited
			return m, nil
		}
		begun := time.Now()
		m, err := c.read(ctx)
		if err == nil {
			c.newest.Store(&keptMap{m, begun, time.Since(begun)})
		}
		return m, err
	})
}

// read reads the data of a map, and assigns numbers to hosts and locations without a number.
func (c *crushMaps) read(ctx context.Context) (*crushmap.Map, error) {
	var source crushmap.Source
	work, reading := errgroup.WithContext(ctx)
	work.Go(func() error {
		providers, err := c.providers(reading)
		source.VCPUs = crushmap.VCPUs(providers)
		return err
	})
	work.Go(func() (err error) {
		if source.Hosts, err = c.hosts(reading); err != nil {
			return err
		}
		if source.Numbers, err = c.numbers.Numbers(reading); err != nil {
			return err
		}
		hosts, locations := crushmap.Unnumbered(source.Hosts, source.Numbers)
		if len(hosts)+len(locations) == 0 {
			return nil
		}
		if err = c.numbers.Number(reading, hosts, locations); err == nil {
			source.Numbers, err = c.numbers.Numbers(reading)
		}
		return err
	})
	if err := work.Wait(); err != nil {
		return nil, err
	}
	return crushmap.New(source)
}

// names returns a function that returns the names of hosts, from the newest map.
func (c *crushMaps) names() func(croft.HostID) string {
	kept := c.newest.Load()
	return func(id croft.HostID) string {
		if kept == nil {
			return string(id)
		}
		return cmp.Or(kept.Hosts[id].Name, string(id))
	}
}

// considered is a host in the order of a request's policy.
type considered struct {
	crushmap.Choice
	why string // why it is refused; empty: it may be taken if it has room
}
