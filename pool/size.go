package pool

import (
	"context"
	"math"
	"time"

	"croft"
)

// Size is a change of a pool's size.
type Size struct {
	Max, MaxPrealloc Change
}

// Change is a new value for a size of a pool. The zero value keeps the present one.
type Change struct {
	To    int
	Given bool
	Reset bool // back to the file's value
}

// Resized holds what an operator set in place of the sizes of the file, and the file's own.
type Resized struct {
	Max          *int `json:"max,omitempty"` // nil: the file's
	MaxPrealloc  *int `json:"max_prealloc,omitempty"`
	FileMax      int  `json:"file_max"`
	FilePrealloc int  `json:"file_max_prealloc"`
}

// InFile returns the sizes that the file gives the pool.
func (p *Record) InFile() (most, prealloc int) {
	if r := p.Resized; r != nil {
		return r.FileMax, r.FilePrealloc
	}
	return p.Settings.Max, p.Settings.MaxPrealloc
}

// fileSettings returns the settings as the file has them.
func (p *Record) fileSettings() Settings {
	set := p.Settings
	set.Max, set.MaxPrealloc = p.InFile()
	return set
}

// over returns settings of the file with the sizes that an operator set, and the record of both.
func (r *Resized) over(set Settings) (Settings, *Resized) {
	if r == nil || r.Max == nil && r.MaxPrealloc == nil {
		return set, nil
	}
	now := *r
	now.FileMax, now.FilePrealloc = set.Max, set.MaxPrealloc
	if r.Max != nil {
		set.Max = *r.Max
	}
	if r.MaxPrealloc != nil {
		set.MaxPrealloc = *r.MaxPrealloc
	}
	return set, &now
}

// mostResources bounds the sizes that an operator may set.
const mostResources = math.MaxInt32

// Resize replaces sizes of a pool, which then no longer follow the file, or returns them to the file's values.
// Invalid; NotFound; Conflict: the pool is no longer in the file; Unavailable.
func (m *Manager) Resize(ctx context.Context, name Name, size Size) error {
	for _, c := range []Change{size.Max, size.MaxPrealloc} {
		if c.Given && !c.Reset && (c.To < 0 || c.To > mostResources) {
			return croft.Errorf(croft.Invalid, "a pool of %d resources: use a number from 0 to %d", c.To, mostResources)
		}
	}
	if !size.Max.Given && !size.MaxPrealloc.Given {
		return croft.Errorf(croft.Invalid, "the request changes nothing: give max or max_prealloc")
	}
	var now Settings
	err := m.change(ctx, func(l *Ledger, _ time.Time) error {
		p := l.pools[name]
		switch {
		case p == nil:
			return croft.Errorf(croft.NotFound, "there is no pool %s", name)
		case p.Removed:
			return croft.Errorf(croft.Conflict, "pool %s is in the file no more: add it there first", name)
		}
		resized := Resized{}
		if p.Resized != nil {
			resized = *p.Resized
		}
		size.Max.apply(&resized.Max)
		size.MaxPrealloc.apply(&resized.MaxPrealloc)
		set, next := resized.over(p.fileSettings())
		if err := checkSize(set, size); err != nil {
			return err
		}
		p.Settings, p.Resized, now = set, next, set
		l.touchPool(p)
		return nil
	})
	if err == nil {
		m.Log.Info("a pool has another size", "pool", name, "max", now.Max, "max_prealloc", now.MaxPrealloc)
	}
	return err
}

func (c Change) apply(to **int) {
	switch {
	case c.Given && c.Reset:
		*to = nil
	case c.Given:
		*to = &c.To
	}
}

// checkSize rejects a size that would have no effect.
func checkSize(set Settings, size Size) error {
	if !size.MaxPrealloc.Given || size.MaxPrealloc.Reset {
		return nil
	}
	if len(set.OnDemand) > 0 && set.MaxPrealloc > 0 {
		return croft.Errorf(croft.Invalid, "pool %s has tags on demand, and so keeps nothing warm: change its max alone",
			set.Name)
	}
	if set.MaxPrealloc > set.Max {
		return croft.Errorf(croft.Invalid, "pool %s cannot keep %d resources warm, since its max is %d: raise max too",
			set.Name, set.MaxPrealloc, set.Max)
	}
	return nil
}
