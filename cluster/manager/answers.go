package manager

import (
	"context"
	"errors"
	"sync"
	"time"

	"croft"
	"croft/cluster"
)

// answers remembers how sites answered.
type answers struct {
	mu  sync.Mutex
	all map[string]cluster.Health
}

func (a *answers) health(site string) cluster.Health {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all[site]
}

// silent counts the sites that do not answer now.
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

// put notes how a site answered, and reports whether that is new.
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

// answered takes account of how a site answered a call: several silent ones keep new clusters away for a while, and a
// credential that is refused says so.
func (m *Manager) answered(ctx context.Context, at cluster.Access, err error) {
	if m.run.Err() != nil {
		return // the call was given up by us
	}
	silent := err != nil && (errors.Is(err, croft.Unavailable) || croft.KindOf(err) == "")
	fault := ""
	if silent {
		fault = err.Error()
		m.survey.NoteSilence(at.Site.Name)
	}
	if m.answers.put(at.Site.Name, fault) && silent {
		m.c.Log.Warn("site does not answer", "site", at.Site.Name, "err", err)
	}
	if !silent && at.Credential.ID != "" {
		m.blame(ctx, at.Credential, err)
	}
}

// blame notes in a credential that its site refuses it, or that it accepts it again.
func (m *Manager) blame(ctx context.Context, c cluster.Credential, err error) {
	fault := ""
	if errors.Is(err, croft.Denied) {
		fault = err.Error()
	}
	if c.LastError == fault {
		return
	}
	c.LastError = fault
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pause)
	defer cancel()
	if _, err := m.c.Catalogue.PutCredential(ctx, c); err != nil && !errors.Is(err, croft.Conflict) {
		m.c.Log.Warn("what is wrong with a credential is not noted", "credential", c.ID, "err", err)
	}
}
