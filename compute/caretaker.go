package compute

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"croft"
	"croft/internal/books"
	"croft/internal/meter"
)

// Caretaker looks after what is no host's own: requests whose schedulers died, names
// and claims of nobody. Every agent that sees the books is one, by turns; a control
// process whose agents do not see them runs one of its own. It harms no guest and no
// disk. New makes that of an agent; all fields but Host and Every are required.
type Caretaker struct {
	Host      croft.HostID // whose agent it is, for the log
	Records   Records
	Inventory Inventory
	Every     time.Duration // 60 s by default
	Log       *slog.Logger

	told map[finding]bool // only one goroutine looks at a time

	once   sync.Once
	counts careCounts
}

// careCounts are a caretaker's metrics.
type careCounts struct {
	meter.Set
	mended      *prometheus.CounterVec
	undone      prometheus.Counter
	differences *prometheus.GaugeVec
}

// metrics makes them at the first call, since a Caretaker is made of its fields alone.
func (c *Caretaker) metrics() *careCounts {
	c.once.Do(func() {
		m := &c.counts
		m.mended = m.Counters("croft_caretaker_mended_total", "Differences that were mended, by kind.", "kind")
		m.undone = m.Counter("croft_caretaker_requests_undone_total",
			"Requests that were undone because their scheduler died.")
		m.differences = m.Gauges("croft_caretaker_differences",
			"What was wrong with what is no host's own, found twice, when it was this caretaker's turn last.", "kind")
		differ(m.differences, nil)
		for _, kind := range books.Kinds {
			m.mended.WithLabelValues(string(kind)) // else the first would be no increase
		}
	})
	return &c.counts
}

// Collector gives the caretaker's metrics.
func (c *Caretaker) Collector() prometheus.Collector { return c.metrics() }

// Run takes its turn from time to time, until ctx ends.
func (c *Caretaker) Run(ctx context.Context) error {
	c.Every = cmp.Or(c.Every, time.Minute)
	every(ctx, c.Every, func(ctx context.Context) {
		if err := c.takeTurn(ctx); err != nil && ctx.Err() == nil {
			c.Log.Warn("what is no host's own could not be looked after; it is tried again", "host", c.Host, "err", err)
		}
	})
	return ctx.Err()
}

// takeTurn looks after the records of all hosts, where it is this one's turn.
func (c *Caretaker) takeTurn(ctx context.Context) error {
	mine, err := c.Records.TakeTurn(ctx, max(c.Every, time.Second))
	if err != nil || !mine {
		return err
	}
	return c.sweepRecords(ctx)
}

// sweepRecords looks after the records of all hosts.
func (c *Caretaker) sweepRecords(ctx context.Context) error {
	first, err := c.lookAtRecords(ctx)
	if err == nil && len(first) == 0 {
		differ(c.metrics().differences, nil)
	}
	if err != nil || len(first) == 0 || !pause(ctx, min(c.Every, confirmAfter)) {
		return err
	}
	second, err := c.lookAtRecords(ctx)
	if err != nil {
		return err
	}
	believed := books.Confirm(first, second)
	differ(c.metrics().differences, believed)
	return c.mend(ctx, believed)
}

// confirmAfter is how long what is under way has to go on before it counts as stuck.
const confirmAfter = 5 * time.Second

// lookAtRecords undoes requests whose schedulers died, for a session that ended does
// not come back, and returns what else is wrong with records.
func (c *Caretaker) lookAtRecords(ctx context.Context) ([]books.Difference, error) {
	b, err := c.Records.Books(ctx)
	if err != nil {
		return nil, err
	}
	var found []books.Difference
	for _, d := range books.Compare(b) {
		switch d.Kind {
		case books.AbandonedRequest:
			if err := c.undo(ctx, b.Instances[d.Instance]); err != nil {
				return nil, err
			}
		case books.LostOrder, books.UndoneOrder, books.HostProblem: // for the host's own agent
		default:
			found = append(found, d)
		}
	}
	return found, nil
}

// undo ends a request whose scheduler died, or was suspended for longer than its session lives. The fence is
// first, since that one may go on at any moment: from here on it can order nothing.
func (c *Caretaker) undo(ctx context.Context, inst croft.Instance) error {
	now, err := c.Records.Fence(ctx, inst)
	switch {
	case errors.Is(err, croft.NotFound):
		return nil // another host swept it
	case err != nil:
		return err
	case now.State != croft.StateScheduling || now.Session != inst.Session:
		return nil // its scheduler was in time
	}
	// The claim next: while the record stands, somebody knows of the claim, and nobody has the UUID anew.
	if err := c.Inventory.Release(ctx, inst.ID); err != nil {
		return err
	}
	err = c.Records.Discard(ctx, now)
	if errors.Is(err, croft.Conflict) {
		return nil // another host swept it
	}
	if err == nil {
		c.metrics().undone.Inc()
		c.Log.Info("a request whose scheduler died was undone", "instance", inst.ID, "host", c.Host)
	}
	return err
}

// mend does what is safe about differences and logs the others, once.
func (c *Caretaker) mend(ctx context.Context, differences []books.Difference) error {
	for _, d := range differences {
		var err error
		switch {
		case d.Kind == books.LeakedClaim && d.Mendable:
			err = c.releaseLeaked(ctx, d)
		case d.Mendable && isLost(d.Kind):
			err = c.Records.Drop(ctx, d)
		default:
			c.tell(d)
			continue
		}
		if err != nil {
			return err
		}
		c.metrics().mended.WithLabelValues(string(d.Kind)).Inc()
		c.Log.Info("mended", "op", string(d.Kind), "instance", d.Instance, "host", c.Host, "reason", d.Cause)
	}
	return nil
}

// isLost tells of the kinds that are entries of nobody.
func isLost(k books.Kind) bool {
	switch k {
	case books.LostName, books.LostUserData, books.LostMember, books.LostOrder, books.LostObservation:
		return true
	}
	return false
}

// releaseLeaked frees a claim, unless somebody began to use its UUID meanwhile.
func (c *Caretaker) releaseLeaked(ctx context.Context, d books.Difference) error {
	_, err := c.Records.Instance(ctx, d.Instance)
	if !errors.Is(err, croft.NotFound) {
		return err
	}
	return c.Inventory.Release(ctx, d.Instance, d.Host)
}

type finding struct {
	kind     books.Kind
	instance croft.InstanceID
}

// first notes a finding. False: it was noted before.
func (c *Caretaker) first(at finding) bool {
	if c.told[at] {
		return false
	}
	if c.told == nil {
		c.told = map[finding]bool{}
	}
	c.told[at] = true
	return true
}

// tell logs a difference, the first time. `croft audit` shows it for as long as it is there.
func (c *Caretaker) tell(d books.Difference) {
	if c.first(finding{d.Kind, d.Instance}) {
		c.Log.Warn("not as the books say; `croft audit` tells more", "op", string(d.Kind), "instance", d.Instance,
			"host", d.Host, "reason", d.Cause)
	}
}
