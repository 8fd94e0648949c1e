package audit

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"croft"
	"croft/internal/delay"
	"croft/internal/meter"
)

// Caretaker audits the records that belong to no host: requests of dead schedulers, names and claims without instances.
// Every agent that sees all records runs one, and they take turns; if agents see only their own records, the process
// with the gate runs one. It harms no guest and no disk. All fields are required except Host, Shared, Volumes,
// Resizes, Images, Every and Announce.
type Caretaker struct {
	Host    croft.HostID // of the agent that runs it, for the log
	Records Entries
	Shared  Shared // nil: another process audits it
	// nil: requests for volumes are not undone
	Volumes   Volumes
	Resizes   Resizes // nil: requests to resize instances are not ended
	Images    Images  // nil: images of the cloud's catalog get no further copies
	Inventory interface {
		Releaser
		// Claims returns the allocations on a provider. NotFound: the provider does not exist.
		Claims(ctx context.Context, provider croft.HostID) (map[croft.InstanceID]croft.Resources, error)
	}
	Every time.Duration // interval of turns; 60 s by default
	Log   *slog.Logger
	// Announce tells users that an instance expires soon; nil: it is only logged.
	Announce func(ctx context.Context, inst croft.Instance) error

	reported map[finding]bool               // accessed by one goroutine at a time
	warned   map[croft.InstanceID]time.Time // announced ends, by instance; likewise

	once   sync.Once
	counts careCounts
}

// careCounts holds a caretaker's metrics.
type careCounts struct {
	meter.Set
	mended      *prometheus.CounterVec
	undone      prometheus.Counter
	expired     prometheus.Counter
	lapsed      prometheus.Counter
	announced   *prometheus.CounterVec
	differences *prometheus.GaugeVec
	clocks      prometheus.Gauge
}

// metrics creates the metrics at the first call, since a Caretaker has no constructor.
func (c *Caretaker) metrics() *careCounts {
	c.once.Do(func() {
		m := &c.counts
		m.mended = m.Counters("croft_caretaker_mended_total", "Differences that were mended, by kind.", "kind")
		m.undone = m.Counter("croft_caretaker_requests_undone_total",
			"Requests that were undone because their scheduler died.")
		m.expired = m.Counter("croft_caretaker_expired_total",
			"Instances that were destroyed because they had expired.")
		m.lapsed = m.Counter("croft_caretaker_holds_ended_total",
			"Held claims that were released because they were not used in time.")
		m.announced = m.Counters("croft_caretaker_announcements_total",
			"Instances whose coming end expiry.hook was run for, by how that ended.", "result")
		m.differences = m.Gauges("croft_caretaker_differences",
			"Differences in the shared records that this caretaker's last turn found in two comparisons.", "kind")
		m.clocks = m.Gauge("croft_caretaker_clock_difference_seconds",
			"Largest difference between a living host's clock and the clock of this caretaker's machine in its last "+
				"turn; 0 for less than a minute, negative if the host's clock is behind.")
		CountKinds(m.differences, nil)
		for _, kind := range Kinds {
			m.mended.WithLabelValues(string(kind)) // so that the first difference counts as an increase
		}
	})
	return &c.counts
}

// Collector returns the caretaker's metrics.
func (c *Caretaker) Collector() prometheus.Collector { return c.metrics() }

// CountKinds sets a gauge to the number of differences of each kind, including 0, so that alerting rules
// always have a value.
func CountKinds(gauge *prometheus.GaugeVec, found []Difference) {
	counts := map[Kind]int{}
	for _, d := range found {
		counts[d.Kind]++
	}
	for _, kind := range Kinds {
		gauge.WithLabelValues(string(kind)).Set(float64(counts[kind]))
	}
}

// Run takes turns until ctx ends.
func (c *Caretaker) Run(ctx context.Context) error {
	c.Every = cmp.Or(c.Every, time.Minute)
	delay.Every(ctx, c.Every, func(ctx context.Context) {
		if err := c.TakeTurn(ctx); err != nil && ctx.Err() == nil {
			c.Log.Warn("the shared records could not be checked; trying again", "host", c.Host, "err", err)
		}
	})
	return ctx.Err()
}

// TakeTurn sweeps if it is this caretaker's turn.
func (c *Caretaker) TakeTurn(ctx context.Context) error {
	if c.Shared == nil {
		return nil
	}
	mine, err := c.Shared.TakeTurn(ctx, max(c.Every, time.Second))
	if err != nil || !mine {
		return err
	}
	if c.Images != nil {
		if err := c.Images.Mend(ctx); err != nil && ctx.Err() == nil {
			c.Log.Warn("the images of the cloud's catalog could not be looked after; trying again", "host", c.Host, "err",
				err)
		}
	}
	return c.Sweep(ctx)
}

// Images looks after the images of the cloud's catalog.
type Images interface {
	// Mend gives up images that stay pending, notes which are lost, and orders copies of images that have too few.
	Mend(ctx context.Context) error
}

// Sweep looks at the records of all hosts twice and mends the differences that both looks found, regardless of turns.
// What fails for one record does not keep the others waiting; the errors are returned at the end.
func (c *Caretaker) Sweep(ctx context.Context) error {
	first, failed := c.look(ctx)
	if failed == nil && len(first) == 0 {
		CountKinds(c.metrics().differences, nil)
	}
	if len(first) == 0 || delay.For(ctx, min(c.Every, confirmAfter)) != nil {
		return failed
	}
	second, again := c.look(ctx)
	failed = cmp.Or(again, failed)
	if second == nil {
		return failed
	}
	believed := Confirm(first, second)
	CountKinds(c.metrics().differences, believed)
	return errors.Join(failed, c.Mend(ctx, believed))
}

// failures collects the errors of single records, so that one that cannot be mended keeps no others waiting.
type failures []error

// add notes an error, if there is one, and reports whether there are too many to be faults of single records.
func (f *failures) add(err error) (enough bool) {
	if err != nil {
		*f = append(*f, err)
	}
	return len(*f) >= 10
}

func (f failures) err() error { return errors.Join(f...) }

// confirmAfter is the time between two looks; a change in progress takes less.
const confirmAfter = 5 * time.Second

// look destroys expired instances, undoes requests whose schedulers died (an ended session never returns), and returns
// the other differences.
func (c *Caretaker) look(ctx context.Context) ([]Difference, error) {
	e, err := c.Shared.Evidence(ctx)
	if err != nil {
		return nil, err
	}
	if err := e.addStored(ctx, c.Inventory); err != nil { // the rest does not need Placement
		c.Log.Warn("the claims on shared storage could not be read; trying again", "host", c.Host, "err", err)
	}
	c.metrics().clocks.Set(e.ClockDifference.Seconds())
	var failed failures
	failed.add(c.expire(ctx, e))
	found := []Difference{}
	for _, d := range Compare(e) {
		var err error
		switch d.Kind {
		case AbandonedRequest:
			err = c.undoRequest(ctx, e.Instances[d.Instance])
		case AbandonedResize:
			err = c.endResize(ctx, e.Instances[d.Instance])
		case AbandonedVolume:
			err = c.undoVolume(ctx, e.Volumes[croft.VolumeID(d.Instance)])
		case LostOrder, UndoneOrder, LeftHere, HostProblem: // for the host's own agent
		default:
			found = append(found, d)
		}
		if failed.add(err) {
			return nil, failed.err()
		}
	}
	return found, failed.err()
}

// endResize ends a request to resize an instance whose program died.
func (c *Caretaker) endResize(ctx context.Context, inst croft.Instance) error {
	if c.Resizes == nil {
		return nil
	}
	err := c.Resizes.EndResize(ctx, inst)
	if err == nil {
		c.Log.Info("a request to resize an instance whose program died was ended", "instance", inst.ID, "host", c.Host)
	}
	return err
}

// undoVolume undoes a request for a volume whose program died.
func (c *Caretaker) undoVolume(ctx context.Context, v croft.Volume) error {
	if c.Volumes == nil {
		return nil
	}
	err := c.Volumes.Undo(ctx, v)
	if err == nil {
		c.Log.Info("a request for a volume whose program died was undone", "volume", v.ID, "host", c.Host)
	}
	return err
}

// expire destroys expired instances, ends expired holds, and announces ends that are near. A record that changed
// meanwhile, for example because a user extended it, is left to the next turn.
func (c *Caretaker) expire(ctx context.Context, e Evidence) error {
	var soon []croft.Instance
	var failed failures
	kept := 0
	for _, inst := range e.Instances {
		left := time.Until(inst.Expires)
		var err error
		switch {
		case inst.Expires.IsZero():
		case e.Clocks != nil && left <= 0:
			kept++
		case inst.State == croft.StateHeld && left <= 0:
			err = c.endHold(ctx, inst)
		case inst.State == croft.StateScheduled && left <= 0:
			err = c.endLife(ctx, inst)
		case inst.State == croft.StateScheduled && left <= croft.ExpirySoon:
			soon = append(soon, inst)
		}
		if failed.add(err) {
			return failed.err()
		}
	}
	if kept > 0 {
		c.Log.Warn("instances and holds are kept, even if they have expired", "count", kept, "err", e.Clocks)
	}
	c.announce(ctx, soon)
	return failed.err()
}

// endLife destroys an instance that has expired.
func (c *Caretaker) endLife(ctx context.Context, inst croft.Instance) error {
	err := c.Shared.Destroy(ctx, inst)
	if errors.Is(err, croft.Conflict) {
		return nil
	}
	if err == nil {
		c.metrics().expired.Inc()
		c.Log.Info("an instance has expired and is destroyed", "instance", inst.ID, "host", inst.Host, "at",
			inst.Expires)
	}
	return err
}

// endHold releases a held claim. A record that changed meanwhile, for example because the claim was used, is left to
// the next turn.
func (c *Caretaker) endHold(ctx context.Context, inst croft.Instance) error {
	now, err := c.Shared.Abandon(ctx, inst)
	switch {
	case errors.Is(err, croft.Conflict):
		return nil
	case err != nil:
		return err
	}
	undone, err := c.undo(ctx, now)
	if undone {
		c.metrics().lapsed.Inc()
		c.Log.Info("a held claim was not used in time and is released", "instance", inst.ID, "host", inst.Host, "at",
			inst.Expires)
	}
	return err
}

// undoRequest ends a request whose scheduler died, or was suspended for longer than its session lives.
func (c *Caretaker) undoRequest(ctx context.Context, inst croft.Instance) error {
	undone, err := c.undo(ctx, inst)
	if undone {
		c.metrics().undone.Inc()
		c.Log.Info("a request whose scheduler died was undone", "instance", inst.ID, "host", c.Host)
	}
	return err
}

// undo removes a record in scheduling with its claim. The fence comes first, since a suspended scheduler may resume at
// any moment: after the fence it cannot write an order. It returns false without an error if another process was
// faster.
func (c *Caretaker) undo(ctx context.Context, inst croft.Instance) (undone bool, err error) {
	now, err := releaseAbandoned(ctx, c.Inventory, c.Shared, inst)
	switch {
	case errors.Is(err, croft.NotFound), errors.Is(err, errInTime):
		return false, nil // another caretaker swept it, or its scheduler is alive
	case err != nil:
		return false, err
	}
	if now.Lost != nil && c.Volumes != nil { // while the record leads to them
		if err := c.Volumes.Return(ctx, now.ID); err != nil {
			return false, err
		}
	}
	err = c.Shared.Discard(ctx, now)
	if errors.Is(err, croft.Conflict) {
		return false, nil // another caretaker swept it
	}
	return err == nil, err
}

// Mend mends the differences that are safe to mend and logs the others, each once.
func (c *Caretaker) Mend(ctx context.Context, differences []Difference) error {
	var failed failures
	for _, d := range differences {
		var err error
		switch {
		case d.Kind == LeakedClaim && d.Mendable:
			err = c.releaseLeaked(ctx, d)
		case d.Mendable && isLost(d.Kind):
			err = c.Records.Drop(ctx, d)
		case d.Kind == UnclaimedVolume && d.Mendable && c.Volumes != nil:
			err = c.reclaim(ctx, d)
		default:
			c.report(d)
			continue
		}
		if k := croft.KindOf(err); d.Kind == UnclaimedVolume && (k == croft.NoCapacity || k == croft.Conflict) {
			c.report(d)
			continue
		}
		if failed.add(err) {
			break
		}
		if err != nil {
			continue
		}
		c.metrics().mended.WithLabelValues(string(d.Kind)).Inc()
		c.Log.Info("mended", "op", string(d.Kind), "instance", d.Instance, "host", c.Host, "reason", d.Cause)
	}
	return failed.err()
}

// reclaim claims what a volume or a snapshot is to claim. NoCapacity: others claim its room. Conflict: it is changing.
func (c *Caretaker) reclaim(ctx context.Context, d Difference) error {
	e, err := c.Shared.Evidence(ctx)
	if err != nil {
		return err
	}
	v, err := e.volumeOf(d)
	if err != nil {
		return err
	}
	return c.Volumes.Reclaim(ctx, v)
}

// isLost reports whether a kind means an entry without an instance.
func isLost(k Kind) bool {
	switch k {
	case LostName, LostUserData, LostMember, LostSeat, LostAddress, LostOrder, LostObservation:
		return true
	}
	return false
}

// releaseLeaked releases a claim unless its UUID is in use again, by an instance that is not lost.
func (c *Caretaker) releaseLeaked(ctx context.Context, d Difference) error {
	err := c.Inventory.Release(ctx, d.Instance, func(ctx context.Context) ([]croft.HostID, error) {
		inst, err := c.Records.Instance(ctx, d.Instance)
		switch {
		case errors.Is(err, croft.NotFound), err == nil && inst.State == croft.StateLost:
			return []croft.HostID{d.Host}, nil
		case err == nil:
			err = errReused
		}
		return nil, err
	})
	if errors.Is(err, errReused) {
		return nil
	}
	return err
}

type finding struct {
	kind     Kind
	instance croft.InstanceID
}

// report logs a difference the first time. `croft audit` shows it as long as it exists.
func (c *Caretaker) report(d Difference) {
	found := finding{d.Kind, d.Instance}
	if c.reported[found] {
		return
	}
	if c.reported == nil {
		c.reported = map[finding]bool{}
	}
	c.reported[found] = true
	c.Log.Warn("the records differ from the state of the hosts or of Placement; `croft audit` shows "+
		"more", "op", string(d.Kind), "instance", d.Instance,
		"host", d.Host, "reason", d.Cause)
}
