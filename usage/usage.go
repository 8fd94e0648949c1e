// Package usage is the history of what projects use: for each project and day in UTC the amounts times the time, and
// the most at once. It is derived from what quotas count, so that a project is measured by what it is charged with. One
// Recorder at a time follows that. Each interval of time is counted once, however recorders are killed, suspended and
// replaced, and whatever their clocks do; what nobody saw is marked as estimated.
package usage

import (
	"context"
	"time"

	"croft"
	"croft/tenant"
)

// What is kept at most.
const (
	Kept     = 400 * day // of each project
	MostDays = 100_000   // of all projects together; those of removed projects go first, then the oldest
)

const day = 24 * time.Hour

// Day is what a project and those below it used on one day.
type Day struct {
	Date string `json:"date"` // in UTC, such as 2026-01-31
	// UnitSeconds are the amounts times the seconds for which they were charged: two VCPUs for an hour are 7200.
	UnitSeconds tenant.Amounts `json:"unit_seconds"`
	Peak        tenant.Amounts `json:"peak"` // the most at once
	// Estimated is for how many seconds of the day the amounts are estimated: they changed while nothing recorded
	// that.
	Estimated int64 `json:"estimated_seconds,omitempty"`
}

// Account is the history of one project.
type Account struct {
	Project croft.Project `json:"project"`
	// Former: the project was removed. A later one of the same name has an account of its own.
	Former bool  `json:"former,omitempty"`
	Days   []Day `json:"days"` // in order, those with any use
}

// Report is a part of the history.
type Report struct {
	// Until is the moment until which it is complete; zero: nothing was ever recorded.
	Until    time.Time `json:"recorded_until,omitzero"`
	Projects []Account `json:"projects"` // by name
}

// Filter chooses a part of the history.
type Filter struct {
	Projects []croft.Project // nil: all
	Former   bool            // those that were removed too
	Since    string          // the first day, such as 2026-01-31; empty: as far back as there is any
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

// has reports whether the filter chooses a day.
func (f Filter) has(date string) bool { return date >= f.Since && (f.Until == "" || date <= f.Until) }

// Head says how far the history is complete, and who writes it. Every write of the history compares it.
type Head struct {
	Recorder string `json:"recorder,omitempty"` // empty: whoever comes may go on
	// Everything up to Revision is in the accounts, and nothing after it happened before At.
	At       time.Time `json:"at"`
	Revision int64     `json:"revision"`

	Generation int64 `json:"-"` // of this value; 0: there is none
}

// ID is that of an account: the counter of a project, which is another one once the project was removed and made anew.
type ID struct {
	Project croft.Project
	Born    int64 // revision
}

// Level is what a project and those below it use at a revision.
type Level struct {
	ID
	Changed int64 // not before the revision of the last change
	Used    tenant.Amounts
}

// Stored is an account as it is kept: a meter, and the days before that of the meter.
type Stored struct {
	ID
	Meter Meter
}

// Finished is a day of an account that is over.
type Finished struct {
	ID
	Day Day
}

// Taken is what a recorder begins with.
type Taken struct {
	Head     Head // as the recorder wrote it
	Revision int64
	Accounts []Stored
	Levels   []Level // as of Revision
	// Follow calls seen with every revision after that, in order, until seen or the watch fails.
	Follow func(ctx context.Context, seen func(Seen) error) error
}

// Step is what a recorder writes at once.
type Step struct {
	Was, Next Head
	Accounts  []Stored
	Days      []Finished
}

// Seen is what one revision changed; nothing, if it wrote a head.
type Seen struct {
	Revision int64
	Levels   []Level
	Gone     []ID // accounts whose counters were removed
}

// Store keeps the history, and tells what projects use.
type Store interface {
	// Head reads the head; the zero Head: there is none.
	Head(ctx context.Context) (Head, error)
	// Take writes the head with the name of a recorder. Conflict: it is not as it was.
	Take(ctx context.Context, was Head, recorder string) (Taken, error)
	// Write writes a step and returns its head. Conflict: the head is not as it was. Days may be there without the
	// accounts if it fails.
	Write(ctx context.Context, s Step) (Head, error)
	// Trim removes what is over the bounds.
	Trim(ctx context.Context, now time.Time) error
}
