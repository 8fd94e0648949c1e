// Package doctor looks at a host the way the agent will need it and says, one line
// for each thing, what was found and what to do about it. It changes nothing, and
// it asks through Probes alone, so that every answer can be tested anywhere.
package doctor

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Level says how much a finding matters.
type Level string

// The levels. With a Warn the host works, slower or with less; with a Fail it
// does not.
const (
	OK   Level = "ok"
	Warn Level = "warn"
	Fail Level = "fail"
)

// Result is what one check found.
type Result struct {
	Level Level  `json:"level"`
	Check string `json:"check"`
	Found string `json:"found"`
	Do    string `json:"do,omitempty"` // what to do; empty where all is well
}

// A Check looks at one thing. Its name is a word or two, the same in every release,
// since scripts ask for it.
type Check struct {
	Name string
	Look func(ctx context.Context) Result
}

// patience is how long one check may take; the slowest honest one boots a tiny
// guest to prove KVM.
const patience = 20 * time.Second

// Run makes all checks at once and returns their findings in the order of checks.
func Run(ctx context.Context, checks []Check) []Result {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	findings := make([]Result, len(checks))
	var work sync.WaitGroup
	for i, c := range checks {
		work.Go(func() {
			findings[i] = c.Look(ctx)
			findings[i].Check = c.Name
		})
	}
	work.Wait()
	return findings
}

// Healthy reports whether nothing failed.
func Healthy(findings []Result) bool {
	return !slices.ContainsFunc(findings, func(f Result) bool { return f.Level == Fail })
}

func good(found string) Result     { return Result{Level: OK, Found: found} }
func warn(found, do string) Result { return Result{Level: Warn, Found: found, Do: do} }
func fail(found, do string) Result { return Result{Level: Fail, Found: found, Do: do} }
