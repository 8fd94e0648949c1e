// Package checks runs independent checks of a system concurrently and reports one finding for each. `croft doctor` and
// `croft grid doctor` print them.
package checks

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Level is the severity of a finding.
type Level string

// The levels. Warn: the system works, but slower or with restrictions. Fail: it does not work.
const (
	OK   Level = "ok"
	Warn Level = "warn"
	Fail Level = "fail"
)

// Result is the finding of one check.
type Result struct {
	Level Level  `json:"level"`
	Check string `json:"check"`
	Found string `json:"found"`
	Do    string `json:"do,omitempty"` // advice; empty: none
}

// Good returns the finding of a successful check.
func Good(found string) Result { return Result{Level: OK, Found: found} }

// Warning returns the finding of a restriction, with advice.
func Warning(found, do string) Result { return Result{Level: Warn, Found: found, Do: do} }

// Failure returns the finding that something does not work, with advice, which may be empty.
func Failure(found, do string) Result { return Result{Level: Fail, Found: found, Do: do} }

// Check examines one aspect of a system. Its name is one or two words and the same in every release, since
// scripts refer to it.
type Check struct {
	Name string
	Look func(ctx context.Context) Result
}

// patience is the timeout of one check. The slowest usual check boots a tiny guest to prove KVM.
const patience = 20 * time.Second

// Run runs all checks concurrently and returns their findings in the order of checks.
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

// Healthy reports whether no check failed.
func Healthy(findings []Result) bool {
	return !slices.ContainsFunc(findings, func(f Result) bool { return f.Level == Fail })
}
