package ledger

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"croft"
)

// Config configures a ledger.
type Config struct {
	Store Store        // required
	Log   *slog.Logger // slog.Default() by default

	// Retry is the pause after a failure before the store is asked again; 200 ms by default.
	Retry time.Duration

	// Patience is how long the store may take to answer, and to report changes that it has stored, before it is
	// considered lost; 3 s by default.
	Patience time.Duration

	// Tidy is the interval of the search for unused custom classes and traits; 1 m by default.
	Tidy time.Duration

	// Beat is the interval at which the store is asked for its revision while there are no requests; 1 s by default.
	Beat time.Duration
}

// Ledger is the state of Placement in memory. Run keeps it up to date. Until it is loaded, and while the store does not
// answer, every request is Unavailable.
type Ledger struct {
	config  Config
	memory  *memory
	commits committer

	session atomic.Pointer[session] // nil: no session; failing has the reason
	failing atomic.Pointer[error]
	loaded  chan struct{} // closed once the state is loaded
	stopped chan struct{} // closed once Run has ended
}

// New creates a ledger, and starts nothing.
func New(c Config) (*Ledger, error) {
	if c.Store == nil {
		return nil, croft.Errorf(croft.Invalid, "placement: Store is required")
	}
	c.Log = cmp.Or(c.Log, slog.Default())
	c.Retry = cmp.Or(c.Retry, 200*time.Millisecond)
	c.Beat = cmp.Or(c.Beat, time.Second)
	c.Patience = cmp.Or(c.Patience, 3*time.Second)
	c.Tidy = cmp.Or(c.Tidy, time.Minute)
	l := &Ledger{
		config:  c,
		memory:  newMemory(),
		loaded:  make(chan struct{}),
		stopped: make(chan struct{}),
	}
	l.commits = committer{store: c.Store, memory: l.memory, patience: patience(c.Patience)}
	starting := errors.New("the state is not loaded yet")
	l.failing.Store(&starting)
	return l, nil
}

// Ready returns nil while the state is loaded and follows the store, else the reason.
func (l *Ledger) Ready() error {
	if err := l.failing.Load(); err != nil {
		return croft.Errorf(croft.Unavailable, "placement: %w", *err)
	}
	return nil
}

// WaitReady returns once the state has been loaded. Unavailable: ctx or Run ended first.
func (l *Ledger) WaitReady(ctx context.Context) error {
	select {
	case <-l.loaded:
		return nil
	case <-l.stopped:
		return croft.Errorf(croft.Unavailable, "placement: %w", errStopped)
	case <-ctx.Done():
		return croft.Errorf(croft.Unavailable, "placement: the state could not be loaded in time: %w",
			cmp.Or(l.Ready(), ctx.Err()))
	}
}

// View calls use with the state, which must have been loaded, and returns the error of use. use must neither change nor
// keep the state.
func (l *Ledger) View(use func(*State) error) (err error) {
	l.memory.read(func(s *State) { err = use(s) })
	return err
}

// Exists returns nil if a provider exists. Another ledger may just have created it, so a miss is checked again after
// CatchUp.
func (l *Ledger) Exists(ctx context.Context, provider string) error {
	find := func(s *State) error {
		_, err := s.FindProvider(provider)
		return err
	}
	if l.View(find) == nil {
		return nil
	}
	if err := l.CatchUp(ctx); err != nil {
		return err
	}
	return l.View(find)
}

// Conflicts returns the number of transactions that were retried because another ledger wrote first.
func (l *Ledger) Conflicts() int64 { return l.commits.conflicts.Load() }

// Sums describes the state of a ledger.
type Sums struct {
	Revision int64            // of the state
	Lag      int64            // revisions from Revision to the newest that the store is known to have
	Capacity map[string]int64 // by class, of all providers
	Claimed  map[string]int64 // by class, of all providers
	Objects  map[string]int64 // by kind
}

// Sums describes the state; nil: it is not loaded.
func (l *Ledger) Sums() (sums *Sums) {
	l.memory.read(func(s *State) {
		if s == nil {
			return
		}
		sums = &Sums{Revision: s.revision, Lag: max(l.memory.newest.Load()-s.revision, 0),
			Capacity: map[string]int64{}, Claimed: map[string]int64{}, Objects: map[string]int64{
				"provider": int64(len(s.providers)), "consumer": int64(len(s.consumers)),
				"custom_class": int64(s.classes.custom()), "custom_trait": int64(s.traits.custom())}}
		for _, p := range s.all {
			for _, inv := range p.Inventories {
				sums.Capacity[s.ClassName(inv.Class)] += inv.Capacity()
				sums.Claimed[s.ClassName(inv.Class)] += p.Used(inv.Class)
			}
		}
	})
	return sums
}
