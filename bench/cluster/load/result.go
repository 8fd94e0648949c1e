package load

import (
	"maps"
	"math"
	"slices"
	"time"
)

// Result is the result of a run. Rates are per second, times in milliseconds.
type Result struct {
	Requests int            `json:"requests"`
	Ran      int            `json:"ran"`
	Errors   map[string]int `json:"errors,omitempty"` // by kind
	Rate     float64        `json:"ran_per_second"`   // from the first request until the last instance ran
	Answer   Delay          `json:"answer_ms"`        // until the call returned
	Running  Delay          `json:"running_ms"`       // until the instance ran
}

// Delay summarizes durations, in milliseconds.
type Delay struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Result summarizes the run.
func (r *Run) Result() Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := Result{Requests: len(r.samples), Ran: r.ran, Errors: maps.Clone(r.errors)}
	var answers, runs []time.Duration
	var last time.Duration
	for _, s := range r.samples {
		if s.Answered > 0 {
			answers = append(answers, s.Answered-s.Due)
		}
		if s.Ran > 0 {
			runs = append(runs, s.Ran-s.Due)
			last = max(last, s.Ran)
		}
	}
	if last > 0 {
		out.Rate = float64(r.ran) / last.Seconds()
	}
	out.Answer, out.Running = delay(answers), delay(runs)
	return out
}

func delay(all []time.Duration) Delay {
	slices.Sort(all)
	return Delay{quantile(all, 0.5), quantile(all, 0.99), quantile(all, 1)}
}

// quantile returns the smallest value that the fraction q of all values does not exceed, in milliseconds; 0 without
// values.
func quantile(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	at := int(math.Ceil(q*float64(len(sorted)))) - 1
	return float64(sorted[max(at, 0)]) / float64(time.Millisecond)
}

// Second is one second of a run.
type Second struct {
	Ran      int     // instances seen running in it
	P50, P99 float64 // of these, since they were due, in milliseconds
}

// Seconds returns the run second by second.
func (r *Run) Seconds() []Second {
	r.mu.Lock()
	defer r.mu.Unlock()
	var by [][]time.Duration
	for _, s := range r.samples {
		if s.Ran == 0 {
			continue
		}
		at := int(s.Ran / time.Second)
		for len(by) <= at {
			by = append(by, nil)
		}
		by[at] = append(by[at], s.Ran-s.Due)
	}
	out := make([]Second, len(by))
	for i, all := range by {
		slices.Sort(all)
		out[i] = Second{len(all), quantile(all, 0.5), quantile(all, 0.99)}
	}
	return out
}
