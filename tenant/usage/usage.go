// Package usage is the history of the usage of projects: for each project and day in UTC, the amounts times the time,
// and the peak. It is derived from the counters of quotas, so that a project's usage equals its charges. One Recorder
// at a time follows these. Each interval of time is counted once, even if recorders are killed, suspended and replaced,
// and whatever their clocks show; intervals without a recorder are marked as estimated.
package usage

import (
	"context"
	"time"

	"croft"
	"croft/tenant"
)

// The retention limits.
const (
	Kept     = 400 * day // per project
	MostDays = 100_000   // total over all projects; days of removed projects are dropped first, then the oldest ones
)

const day = 24 * time.Hour

// Day is the usage of a project and the projects below it on one day.
type Day struct {
	Date string `json:"date" format:"date"` // in UTC, such as 2026-01-31
	// UnitSeconds are the charged amounts times seconds: two VCPUs for an hour are 7200.
	UnitSeconds tenant.Amounts `json:"unit_seconds" minimum:"0"`
	Peak        tenant.Amounts `json:"peak" minimum:"0"` // the maximum at any time
	// Estimated is the number of seconds for which the amounts are estimated, because they changed while no recorder
	// ran.
	Estimated int64 `json:"estimated_seconds,omitempty"`
}

// Account is the history of one project.
type Account struct {
	Project croft.Project `json:"project"` // its name
	// Former: the project was removed. A later one of the same name has its own account.
	Former bool  `json:"former,omitempty"`
	Days   []Day `json:"days"` // in order, those with any usage
}

// Report is a part of the history.
type Report struct {
	// Until is the time up to which the history is complete; zero: nothing was ever recorded.
	Until    time.Time `json:"recorded_until,omitzero"`
	Projects []Account `json:"projects"` // by name
	// Capacity is what the hosts that took instances offered together, for operators, by day since it is measured.
	Capacity []Day `json:"capacity,omitempty"`
}

// Filter selects a part of the history.
type Filter struct {
	Projects []croft.Project // nil: all
	Former   bool            // include removed projects
	Since    string          // the first day, such as 2026-01-31; empty: the oldest one
	Until    string          // the last day; empty: today
}

// Check validates the days of a filter. Invalid.
func (f Filter) Check() error {
	for _, text := range []string{f.Since, f.Until} {
		if _, err := time.Parse(time.DateOnly, text); text != "" && err != nil {
			return croft.Errorf(croft.Invalid, "%.40q is no day: write it as 2026-01-31", text)
		}
	}
	if f.Until != "" && f.Since > f.Until {
		return croft.Errorf(croft.Invalid, "the last day, %s, is before the first, %s", f.Until, f.Since)
	}
	return nil
}

// has reports whether the filter selects a day.
func (f Filter) has(date string) bool { return date >= f.Since && (f.Until == "" || date <= f.Until) }

// Head says up to which point the history is complete, and which recorder writes it. Every write of the history
// compares it.
type Head struct {
	Recorder string `json:"recorder,omitempty"` // empty: any recorder may continue
	// Everything up to Revision is included in the accounts, and every later change happened at At or later.
	At       time.Time `json:"at"`
	Revision int64     `json:"revision"`

	Generation int64 `json:"-"` // revision of this value; 0: it does not exist
}

// ID identifies an account by the counter of its project. A project that was removed and created again has another
// counter.
type ID struct {
	Project croft.Project
	Born    int64 // creation revision of the counter
}

// Level is the amounts in use by a project and the projects below it at a revision.
type Level struct {
	ID
	Changed int64 // at least the revision of the last change
	Used    tenant.Amounts
}

// Stored is a stored account: a meter, and the days before the meter's day.
type Stored struct {
	ID
	Meter Meter
}

// Finished is a finished day of an account.
type Finished struct {
	ID
	Day Day
}

// Taken is the initial state of a recorder.
type Taken struct {
	Head     Head // as the recorder wrote it
	Revision int64
	Accounts []Stored
	Levels   []Level // at Revision
	// Follow calls seen with every revision after Revision, in order, until seen or the watch fails.
	Follow func(ctx context.Context, seen func(Seen) error) error
}

// Step is the data that a recorder writes in one transaction.
type Step struct {
	Was, Next Head
	Accounts  []Stored
	Days      []Finished
}

// Seen is the changes of one revision; empty, if it wrote a head.
type Seen struct {
	Revision int64
	Levels   []Level
	Gone     []ID // accounts whose counters were removed
}

// Store stores the history, and watches the usage of projects.
type Store interface {
	// Head returns the head; the zero Head: none exists.
	Head(ctx context.Context) (Head, error)
	// Take writes the head with the name of a recorder. Conflict: the head changed.
	Take(ctx context.Context, was Head, recorder string) (Taken, error)
	// Write writes a step and returns its head. Conflict: the head changed. After an error, days may be stored without
	// the accounts.
	Write(ctx context.Context, s Step) (Head, error)
	// Trim removes data beyond the retention limits.
	Trim(ctx context.Context, now time.Time) error
}
