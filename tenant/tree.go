package tenant

import (
	"fmt"
	"slices"

	"croft"
	"croft/tenant/access"
)

// Tree finds the ancestors and descendants of projects.
type Tree struct {
	projects map[croft.Project]Tenant
	children map[croft.Project][]croft.Project
}

// NewTree makes a tree of all projects that have a record.
func NewTree(all []Tenant) Tree {
	t := Tree{map[croft.Project]Tenant{}, map[croft.Project][]croft.Project{}}
	for _, p := range all {
		t.projects[p.Name] = p
		t.children[p.Parent] = append(t.children[p.Parent], p.Name)
	}
	for _, below := range t.children {
		slices.Sort(below)
	}
	return t
}

// Chain lists a project and its ancestors, the root last. A project without a record is a root.
func (t Tree) Chain(p croft.Project) []croft.Project {
	chain := []croft.Project{p}
	for p = t.projects[p].Parent; p != "" && len(chain) < MaxDepth; p = t.projects[p].Parent {
		chain = append(chain, p)
	}
	return chain
}

// Below lists a project and all projects below it, in depth-first order.
func (t Tree) Below(p croft.Project) []croft.Project {
	all := []croft.Project{p}
	for _, child := range t.children[p] {
		all = append(all, t.Below(child)...)
	}
	return all
}

// ID returns the identity of a project; empty: it has no record.
func (t Tree) ID(p croft.Project) croft.ProjectID { return t.projects[p].ID }

// Generation returns the generation of a project; 0: it has no record.
func (t Tree) Generation(p croft.Project) int64 { return t.projects[p].Generation }

// RolesOf lists the roles of a user in a project: the role as its member, and administrator if the user administers an
// ancestor.
func (t Tree) RolesOf(user string, p croft.Project) []access.Role {
	var roles []access.Role
	for i, name := range t.Chain(p) {
		role, is := t.projects[name].Members[user]
		if is && (i == 0 || role == access.ProjectAdmin) && !slices.Contains(roles, role) {
			roles = append(roles, role)
		}
	}
	return roles
}

// ProjectsOf lists the projects that have a user as a member, by name.
func (t Tree) ProjectsOf(user string) []croft.Project {
	var all []croft.Project
	for name, p := range t.projects {
		if _, is := p.Members[user]; is {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// Sorted lists the projects of the tree, each after its parent.
func (t Tree) Sorted() []Tenant {
	var all []Tenant
	var walk func(croft.Project)
	walk = func(parent croft.Project) {
		for _, name := range t.children[parent] {
			all = append(all, t.projects[name])
			walk(name)
		}
	}
	walk("")
	return all
}

// Account holds the limits and the usage of one project of a chain. The usage includes all projects below it.
type Account struct {
	Project croft.Project `json:"project"` // its name

	ID croft.ProjectID `json:"-"` // empty: the project has no record

	Limits Limits  `json:"limits,omitempty" maxProperties:"100" minimum:"-1"` // its own; see Effective
	Used   Amounts `json:"used"`                                              // by measure
	// separately counted records, such as SSH keys, and their bytes
	Stored Amounts `json:"stored,omitempty"`
}

// Effective returns the limits that apply, including the partition's.
func (a Account) Effective(defaults Limits) Limits {
	all := Limits{}
	for _, limits := range []Limits{defaults, a.Limits} {
		for m := range limits {
			if n, limited := a.Limits.of(m, defaults); limited && m.exists() {
				all[m] = n
			}
		}
	}
	return all
}

// Limit returns the limit that applies to a measure: its own, else the partition's, else the bound.
func (a Account) Limit(defaults Limits, m Measure) (int64, bool) { return a.Limits.of(m, defaults) }

// Limited reports whether any measure of an amount has a limit.
func (a Account) Limited(defaults Limits, more Amounts) bool {
	for m := range more {
		if _, limited := a.Limits.of(m, defaults); limited {
			return true
		}
	}
	return false
}

// Refusal is the reason why a project may not use more.
type Refusal struct {
	Measure   Measure       `json:"resource"`
	Limit     int64         `json:"limit"`
	Used      int64         `json:"used"`
	Requested int64         `json:"requested"`
	Project   croft.Project `json:"project"` // the project of the chain whose limit it is
	Of        croft.Project `json:"of"`      // the requesting project
}

func (r *Refusal) Error() string {
	by := ""
	if r.Project != r.Of {
		by = " by it and the projects below it"
	}
	return fmt.Sprintf("the quota of project %s is %s:%d, of which %d is used%s, and project %s requests %d more: "+
		"destroy something, or have the limit raised (croft quota set)", r.Project, r.Measure, r.Limit, r.Used, by, r.Of,
		r.Requested)
}

// Admit decides whether the first project of a chain may use more. It ignores limits of measures of which the request
// needs nothing, so that such a limit never refuses the request. OverQuota: the error holds a *Refusal.
func Admit(chain []Account, defaults Limits, more Amounts) error {
	for _, a := range chain {
		for _, m := range more.sorted() {
			limit, limited := a.Limits.of(m, defaults)
			if limited && more[m] > 0 && a.Used[m] > limit-more[m] {
				return croft.Errorf(croft.OverQuota, "%w", &Refusal{Measure: m, Limit: limit, Used: a.Used[m],
					Requested: more[m], Project: a.Project, Of: chain[0].Project})
			}
		}
	}
	return nil
}
