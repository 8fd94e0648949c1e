package pool

import (
	"context"
	"slices"
	"time"

	"croft"
	"croft/tenant"
)

// Quotas reads the quotas of projects.
type Quotas interface {
	// Limits returns the accounts of a project and its ancestors, the project first, and the default limits for
	// projects without own limits. The accounts' usage is not filled in: this package counts tickets and pools itself.
	Limits(ctx context.Context, p croft.Project) (chain []tenant.Account, defaults tenant.Limits, err error)
}

// allowance holds the limits that apply to a project, as of the time of a request.
type allowance struct {
	chain    []tenant.Account // the project first; empty: no project is charged
	defaults tenant.Limits
}

// mayHave reads the limits that apply to a project.
func (m *Manager) mayHave(ctx context.Context, p croft.Project) (allowance, error) {
	if p == "" {
		return allowance{}, nil
	}
	if m.Quotas == nil {
		return allowance{chain: []tenant.Account{{Project: p}}}, nil
	}
	chain, defaults, err := m.Quotas.Limits(ctx, p)
	return allowance{chain, defaults}, err
}

// identity returns the identity of the project of an opening. NotFound: the project that it names was replaced.
func (m *Manager) identity(o Opening, may allowance) (croft.ProjectID, error) {
	if len(may.chain) == 0 || m.Quotas == nil { // projects have no records here
		return o.ProjectID, nil
	}
	if id := may.chain[0].ID; o.ProjectID == "" || o.ProjectID == id {
		return id, nil
	}
	return "", croft.Errorf(croft.NotFound, "there is no project %s any more: another one of this name was created",
		o.Project)
}

// admit decides whether a project may have one more of the objects in counted. OverQuota: the error holds a
// *tenant.Refusal.
func (l *Ledger) admit(may allowance, m tenant.Measure, counted map[croft.Project]int) error {
	if len(may.chain) == 0 {
		return nil
	}
	l.place(may)
	accounts := slices.Clone(may.chain)
	for i := range accounts {
		used := int64(0)
		for p, n := range counted {
			if p == accounts[i].Project || slices.Contains(l.above[p], accounts[i].Project) {
				used += int64(n)
			}
		}
		accounts[i].Used = tenant.Amounts{m: used}
	}
	return tenant.Admit(accounts, may.defaults, tenant.Amounts{m: 1})
}

// place records the ancestors of a project.
func (l *Ledger) place(may allowance) {
	var above []croft.Project
	for _, a := range may.chain[1:] {
		above = append(above, a.Project)
	}
	l.above[may.chain[0].Project] = above
}

// projects lists the projects that are charged for tickets and pools.
func (l *Ledger) projects() (all []croft.Project) {
	for p := range l.openIn {
		all = append(all, p)
	}
	for p := range l.poolsIn() {
		all = append(all, p)
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(p croft.Project) bool { return p == "" })
}

// poolsIn counts the pools of each project. A removed pool counts until its last resource is deleted.
func (l *Ledger) poolsIn() map[croft.Project]int {
	all := map[croft.Project]int{}
	for _, p := range l.pools {
		all[p.Settings.Project]++
	}
	return all
}

// learnProjects reads the ancestors of the projects that have tickets or pools already.
func (m *Manager) learnProjects(ctx context.Context, l *Ledger) error {
	for _, p := range l.projects() {
		may, err := m.mayHave(ctx, p)
		if err != nil {
			return err
		}
		l.place(may)
	}
	return nil
}

// quotaPatience is how long a round waits for limits; quotaPause is the interval at which refused limits are read
// again.
const (
	quotaPatience = 5 * time.Second
	quotaPause    = 5 * time.Second
)

// admitPools decides whether the quotas of projects allow the new pools of a file. OverQuota.
func (a *acting) admitPools(ctx context.Context, pools []Settings) error {
	ctx, cancel := context.WithTimeout(ctx, quotaPatience)
	defer cancel()
	counted := a.ledger.poolsIn()
	for _, set := range pools {
		has := a.ledger.pools[set.Name]
		if set.Project == "" || has != nil && has.Settings.Project == set.Project {
			continue
		}
		may, err := a.mayHave(ctx, set.Project)
		if err == nil {
			err = a.ledger.admit(may, tenant.CountPools, counted)
		}
		if err != nil {
			return croft.Errorf(croft.KindOf(err), "pool %s: %w", set.Name, err)
		}
		counted[set.Project]++
	}
	return nil
}
