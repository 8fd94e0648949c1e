package pool

import (
	"fmt"
	"os"
	"time"
)

// File is pools.yaml, read again whenever it changes. While it is faulty, or being written, the last valid
// version stays in force: a half-written file may lack pools, whose resources would all be deleted.
type File struct {
	Path    string
	Check   func(Instance) error // validates instances; see Parse
	Unknown func(error)          // gets unknown settings; see Parse
	Warn    func(error)          // gets settings that cannot take effect; may be nil

	seen   stamp
	since  time.Time // when seen was first read
	moving bool      // it is being written
	good   bool
	read   []Settings
	err    error
}

// stamp identifies one version of a file.
type stamp struct {
	size    int64
	changed time.Time
	there   bool
}

// settles is how long a file must be unchanged before it is read.
const settles = 200 * time.Millisecond

// beingWritten reports whether the file may be incomplete.
func (s stamp) beingWritten() bool {
	age := time.Since(s.changed)
	return age >= 0 && age < settles
}

// Load returns the pools of the last valid version of the file, whether they changed since the last call, and
// the present error in the file.
func (f *File) Load() (pools []Settings, fresh bool, err error) {
	now, err := f.stamp()
	f.moving = err == nil && f.good && now != f.seen && now.beingWritten()
	if err == nil && f.good && now == f.seen || f.moving {
		return f.read, false, f.err
	}
	if err == nil {
		pools, err = f.parse()
	}
	if !f.good || now != f.seen {
		f.since = time.Now()
	}
	f.seen, f.err, f.good = now, err, true
	if err != nil {
		return f.read, false, err
	}
	f.read = pools
	return pools, true, nil
}

// unchanged returns how long the file has been unchanged since it was last read.
func (f *File) unchanged() time.Duration {
	return max(time.Since(f.seen.changed), time.Since(f.since))
}

func (f *File) stamp() (stamp, error) {
	info, err := os.Stat(f.Path)
	if err != nil {
		return stamp{}, fmt.Errorf("read the pools: %w", err)
	}
	return stamp{info.Size(), info.ModTime(), true}, nil
}

func (f *File) parse() ([]Settings, error) {
	text, err := os.ReadFile(f.Path)
	if err != nil {
		return nil, fmt.Errorf("read the pools: %w", err)
	}
	return parse(f.Path, text, f.Check, f.Unknown, f.Warn)
}
