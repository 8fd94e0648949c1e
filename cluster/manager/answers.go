package manager

import (
	"sync"
	"time"

	"croft/cluster"
)

// answers stores the last result of each site.
type answers struct {
	mu  sync.Mutex
	all map[string]cluster.Health
}

func (a *answers) health(site string) cluster.Health {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all[site]
}

// silent counts the sites that do not answer.
func (a *answers) silent() float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, h := range a.all {
		if !h.OK {
			n++
		}
	}
	return float64(n)
}

// put stores the result of a site, and reports whether it changed.
func (a *answers) put(site string, fault string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all == nil {
		a.all = map[string]cluster.Health{}
	}
	before, known := a.all[site]
	now := cluster.Health{OK: fault == "", Error: fault, Since: before.Since}
	changed := !known || before.OK != now.OK
	if changed {
		now.Since = time.Now().UTC()
	}
	a.all[site] = now
	return changed
}
